package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// One fault comes at the n-th statement of a run, for each n. If a call says that nothing was applied, that is true. A call that
// does not say so is repeated with the same ids, and at the end everything has counted once. The short run takes each eleventh statement.
func TestFaultAtEachStatement(t *testing.T) {
	t.Parallel()
	step := 11
	if os.Getenv(longtest.Variable) != "" {
		step = 1
	}
	for i, fault := range []string{cutBefore, cutAfter, cutAnswers, pooler, warning, "40001", "40P01", "53100", "57P01", "25006"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t)
			n := 1 + i%step
			for f.run(t, fault, n) {
				n += step
			}
			f.compare(t)
			t.Logf("%d statements, %d runs; %d calls applied nothing, %d may have", n, f.runs, f.refused, f.open)
			if f.runs < 80/step || f.refused+f.open == 0 {
				t.Error("the faults did not come")
			}
		})
	}
}

// A faulty is a store with an interceptor, and the content that it must have in the end.
type faulty struct {
	*interceptor
	store, direct opened
	name          string // of the schema
	settings      store.Settings
	runs          int
	refused, open int // calls
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	address := emulator.PostgresSchema(t)
	f := &faulty{interceptor: intercept(t, host(t, address)), direct: open(t, postgres.Config{URL: address}), name: schemaOf(t, address)}
	f.store = open(t, postgres.Config{URL: strings.Replace(address, host(t, address), f.listener.Addr().String(), 1)})
	checked, err := f.direct.Check(t.Context())
	if err == nil {
		err = f.direct.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 1}, {Counter: "b", Shards: 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	f.settings = checked.Settings
	return f
}

// run makes all calls, and reports whether the fault has come.
func (f *faulty) run(t *testing.T, fault string, n int) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f.runs++
	now := time.Now()
	keyed, plain, old := wire.KeyID("", fmt.Sprint(n), 0), wire.IncrementID("a", fmt.Sprint(n)), wire.IncrementID("old", fmt.Sprint(n))
	exec(t, "select "+f.name+".add('a', 100)", "select "+f.name+".add('b', 1000)")
	var sum store.Sum
	f.arm(fault, n)
	defer f.disarm()

	f.call(t, "a fold", f.all(ctx, t, keyed, plain), func() error {
		return f.fold(ctx, 1, func(c *store.Commit) {
			for _, id := range []wire.PartID{keyed, plain} {
				c.Markers = append(c.Markers, store.Marker{ID: id, Fold: 7, At: now, ExpireAt: now.Add(time.Hour)})
			}
		})
	})
	f.call(t, "the same key again", nil, func() error {
		err := f.fold(ctx, 1, func(c *store.Commit) {
			c.Markers = []store.Marker{{ID: keyed, Fold: 8, At: now, ExpireAt: now.Add(time.Hour)}}
		})
		switch {
		case err == nil:
			t.Error("a key counts twice")
		case errors.Is(err, store.ErrMarkerExists):
			return nil
		}
		return err
	})
	f.call(t, "a fold with a marker that has expired", f.all(ctx, t, old), func() error {
		return f.fold(ctx, 10, func(c *store.Commit) {
			c.Markers = []store.Marker{{ID: old, At: now.Add(-2 * time.Hour), ExpireAt: now.Add(-time.Hour)}}
		})
	})
	f.call(t, "a sweep", nil, func() error { return f.store.Sweep(ctx) })
	if left := f.all(ctx, t, old, keyed, plain)(); left != 1 || f.all(ctx, t, keyed, plain)() != 2 {
		t.Error("a sweep removes other markers than those that have expired, or fewer")
	}
	f.call(t, "a read", nil, func() (err error) { sum, err = look(ctx, f.store, "b"); return err })
	reset := wire.ResetID("b", fmt.Sprint(n))
	f.call(t, "a reset", f.all(ctx, t, reset), func() error {
		_, err := f.store.ResetCounter(ctx, store.ResetRequest{ID: reset, Counter: "b", Look: sum, At: now, ExpireAt: now.Add(time.Hour)})
		return err
	})
	take := wire.SequenceID("orders", fmt.Sprint(n))
	f.call(t, "a value", f.all(ctx, t, take), func() error {
		given, err := f.store.NextValues(ctx, "orders", []store.Take{{ID: take, Count: 1, At: now, ExpireAt: now.Add(time.Hour)}})
		if err == nil && given[0].First != int64(f.runs) {
			t.Errorf("the value is %d, want %d", given[0].First, f.runs)
		}
		return err
	})
	f.call(t, "a list", nil, func() error { _, err := f.store.Added(ctx, 10); return err })
	left := func() []store.Added {
		all, err := f.direct.Added(ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	f.call(t, "a fold of increments of transactions", func() int { return 2 - len(left()) }, func() error {
		taken := left()
		if len(taken) == 0 {
			return nil
		}
		err := f.fold(ctx, 0, func(c *store.Commit) {
			for _, a := range taken {
				c.Adds, c.Taken = append(c.Adds, store.NewShardDelta(a.Counter, 0, a.Delta)), append(c.Taken, a.ID)
			}
		})
		if errors.Is(err, store.ErrMarkerExists) { // the attempt before still holds them
			return store.ErrNotApplied
		}
		return err
	})
	return f.disarm()
}

// fold commits delta to two counters, with more.
func (f *faulty) fold(ctx context.Context, delta int64, more func(c *store.Commit)) error {
	c := &store.Commit{Rules: f.settings.Version, Restores: f.settings.Restores}
	if delta > 0 {
		c.Adds = []store.ShardDelta{store.NewShardDelta("a", 0, delta), store.NewShardDelta("b", 0, delta)}
	}
	more(c)
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int { return cmp.Compare(a.Order, b.Order) })
	_, err := f.store.Fold(ctx, c)
	return err
}

// all says which of the markers exist: 0 for none, 2 for all, 1 for some.
func (f *faulty) all(ctx context.Context, t *testing.T, ids ...wire.PartID) func() int {
	return func() int {
		found, err := f.direct.Applied(ctx, ids)
		switch {
		case err != nil:
			t.Fatal(err)
		case len(found) == len(ids):
			return 2
		}
		return min(1, len(found))
	}
}

// call repeats a call until it has succeeded. applied says whether it has taken effect: 0 for no, 2 for yes; it is nil for a read.
func (f *faulty) call(t *testing.T, what string, applied func() int, do func() error) {
	t.Helper()
	unknown := false
	for range 20 {
		err := do()
		certain := errors.Is(err, store.ErrNotApplied) || errors.Is(err, store.ErrDeployment) || errors.Is(err, store.ErrOutdated)
		switch {
		case err == nil || unknown && errors.Is(err, store.ErrMarkerExists):
			if applied != nil && applied() != 2 {
				t.Errorf("%s: the answer is %v, and it was not applied", what, err)
			}
			return
		case errors.Is(err, store.ErrRefused), errors.Is(err, store.ErrMarkerExists):
			t.Errorf("%s: %v", what, err)
			return
		case applied == nil:
		case certain:
			f.refused++
			if !unknown && applied() == 2 {
				t.Errorf("%s: the answer is %v, and it was applied", what, err)
			}
		default:
			unknown, f.open = true, f.open+1
		}
	}
	t.Errorf("%s fails again and again", what)
}

// look reads the record and the shard of a counter.
func look(ctx context.Context, s opened, counter string) (store.Sum, error) {
	v := s.View()
	defer v.Close()
	values, err := v.Lookup(ctx, []store.Key{{Counter: counter, Shard: store.RecordKey}, {Counter: counter}})
	if err != nil {
		return store.Sum{}, err
	}
	return store.Sum{Exists: values[0].Exists, Sum: values[1].Count, ResetState: values[0].Reset, At: v.ReadTime()}, nil
}

// compare compares the sums of all runs.
func (f *faulty) compare(t *testing.T) {
	t.Helper()
	n := int64(f.runs)
	for counter, want := range map[string]int64{"a": 111 * n, "b": 1011 * n} {
		sum, err := look(t.Context(), f.direct, counter)
		if err != nil || sum.Sum != int128.Of(want) {
			t.Errorf("%s is %v (%v), want %d", counter, sum.Sum, err, want)
		}
		// Each reset has found all runs before its own, and what its own had folded.
		if after := int64(1000); counter == "b" && sum.Sum.Sub(sum.Baseline) != int128.Of(after) {
			t.Errorf("after the last reset b is %v, want %d", sum.Sum.Sub(sum.Baseline), after)
		}
	}
	if state, err := f.direct.Sequence(t.Context(), "orders"); err != nil || state.Last != n {
		t.Errorf("the last value is %d (%v), want %d", state.Last, err, n)
	}
}
