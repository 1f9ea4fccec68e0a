package indexer

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// An index over counters that exist, while folds with and without it go on, serves the sums of all. Its
// Checked is after Since.
func TestAnIndexIsBuilt(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(300, 7, 1))
		old := r.settings()
		called := 0
		_, stop := r.worker(Config{Page: 10, OnRules: func(context.Context) { called++ }})
		defer stop()
		x := r.change(store.CreateIndex)
		r.fold(pages(200, 7, 1000))
		time.Sleep(time.Until(x.Since) - 2*time.Second)
		r.apply(r.commit(old, pages(100, 7, 1_000_000))) // late, where the store takes it
		time.Sleep(time.Until(x.Since) - time.Second)
		synctest.Wait()
		if r.serves() && !r.store.Limits().RefusesOldRules {
			t.Error("the index serves before commits without it have settled")
		}
		r.check("before it serves", false)
		r.await("serving", 2*time.Minute, r.serves)
		r.check("serving", true)
		r.fold(pages(100, 7, -5))
		r.check("after more folds", true)
		if x = r.index(); !x.Checked.After(x.Since) || called != 1 {
			t.Errorf("checked at %s, since %s, OnRules called %d times", x.Checked, x.Since, called)
		}
		for _, p := range r.ranges(x) {
			if !p.Read.After(x.Since) || p.Worker != "" {
				t.Errorf("range %d was read at %s by %q, since %s", p.ID, p.Read, p.Worker, x.Since)
			}
		}
	})
}

// A worker without work asks for the rules and nothing else.
func TestAnIdleIndexCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds["embedded"])
		r.change(store.CreateIndex)
		_, stop := r.worker(Config{})
		defer stop()
		r.await("serving", time.Minute, r.serves)
		calls := func() (n int) {
			for _, op := range []string{"scan indexrange", "tx indexrange", "scan shard", "scan remainder", "tx remainder", "tx meta"} {
				n += r.store.Calls(op)
			}
			return n
		}
		before := calls()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := calls() - before; got != 0 {
			t.Errorf("%d calls in an hour", got)
		}
	})
}

// A shard that was folded without a complete index is found by a recheck, counted and corrected.
func TestARecheckCorrects(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(50, 3, 1))
		r.change(store.CreateIndex)
		x, stop := r.worker(Config{Recheck: time.Hour})
		defer stop()
		r.await("serving", settled, r.serves)
		c := r.commit(r.settings(), map[string]int64{"page:s1:lost": 40})
		c.Grouped = nil // the mistake
		for i := range c.Adds {
			if c.Adds[i].Counter == "=site:s1" {
				c.Adds = append(c.Adds[:i], c.Adds[i+1:]...)
				break
			}
		}
		r.apply(c)
		first := r.index().Checked
		r.await("the recheck", 3*time.Hour, func() bool { return r.index().Checked.After(first) })
		r.check("after the recheck", true)
		corrected := int64(0)
		for _, p := range r.ranges(r.index()) {
			corrected += p.Corrected
		}
		if got := x.Stats().Corrected; got != 1 || corrected != 1 {
			t.Errorf("the worker has corrected %d groups, the ranges %d, want 1", got, corrected)
		}
		before := x.Stats().Corrected
		second := r.index().Checked
		r.await("the next recheck", 3*time.Hour, func() bool { return r.index().Checked.After(second) })
		if x.Stats().Corrected != before {
			t.Error("the next recheck has corrected again")
		}
	})
}

// An index is deleted while a range of it is checked. Folds stop going by it, and its groups were not wrong.
func TestAnIndexEndsWhileItIsChecked(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(50, 3, 1))
		x := r.change(store.CreateIndex)
		worker, stop := r.worker(Config{Recheck: time.Hour, Ranges: 1, Page: 10})
		defer stop()
		r.await("serving", settled, r.serves)
		read := 0
		r.store.On("scan shard", func(int) protocoltest.Answer {
			if read++; read == 2 {
				r.change(store.DeleteIndex)
				r.fold(pages(50, 3, 1000))
			}
			return protocoltest.OK
		})
		r.await("the removal", 3*time.Hour, func() bool { return r.index() == nil })
		if r.gone(x); read < 2 || worker.Stats().Corrected != 0 {
			t.Errorf("the worker has read %d pages and corrected %d groups, want none", read, worker.Stats().Corrected)
		}
	})
}

// A worker that ends keeps its lease. Another one then splits the range, and the remainders that the first
// has set are taken back.
func TestTheRangeOfALostWorkerIsSplit(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(300, 150, 1)) // more groups than one SetRemainders takes
		r.change(store.CreateIndex)
		time.Sleep(settled)
		ctx, kill := context.WithCancel(context.Background())
		sets := 0
		r.store.On("tx remainder", func(int) protocoltest.Answer {
			if sets++; sets == 2 {
				kill()
				return protocoltest.UnknownApplied
			}
			return protocoltest.OK
		})
		New(r.store, Config{WorkerID: "first", Logger: quiet, Ranges: 1}).Run(ctx)
		if n := len(r.ranges(r.index())); n != 1 || r.serves() {
			t.Fatalf("%d ranges, serving: %t", n, r.serves())
		}
		r.store.On("tx remainder", nil)
		_, stop := r.worker(Config{})
		defer stop()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := len(r.ranges(r.index())); n != 1 || r.serves() {
			t.Errorf("%d ranges during the lease, serving: %t", n, r.serves())
		}
		r.await("serving", 2*time.Minute, r.serves)
		r.check("serving", true)
		ranges := slices.DeleteFunc(r.ranges(r.index()), func(p store.IndexRange) bool { return p.Retired })
		if len(ranges) != 2 || ranges[0].From != 0 || ranges[0].To+1 != ranges[1].From || ranges[1].To != math.MaxUint64 {
			t.Errorf("ranges %+v, want two halves", ranges)
		}
	})
}

// A range of too many groups for the memory is split where the worker is.
func TestARangeOfManyGroupsIsSplit(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(300, 100, 1))
		r.change(store.CreateIndex)
		_, stop := r.worker(Config{Ranges: 2, Page: 7, MostGroups: 20})
		defer stop()
		r.await("serving", settled, r.serves)
		r.check("serving", true)
		var live []store.IndexRange
		places := uint64(0)
		for _, p := range r.ranges(r.index()) {
			if !p.Retired {
				live, places = append(live, p), places+p.To-p.From+1
			}
			if p.Remainders > 20+7 {
				t.Errorf("range %d has %d remainders", p.ID, p.Remainders)
			}
		}
		if len(live) < 4 || places != 0 {
			t.Errorf("%d ranges, which have %x places more than there are", len(live), places)
		}
	})
}

// A page without any shard has no place. A range is not split there.
func TestARangeIsNotSplitWithoutAPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds["embedded"])
		r.fold(pages(300, 100, 1))
		r.change(store.CreateIndex)
		time.Sleep(time.Second)
		x := New(&sparse{r.store}, Config{WorkerID: "w", Logger: quiet, Ranges: 4, Page: 10, MostGroups: 20})
		for range 1000 {
			if worked, err := x.Step(context.Background()); err != nil {
				t.Fatal(err)
			} else if !worked {
				break
			}
		}
		r.check("serving", r.serves())
		covered := uint64(0)
		for _, p := range r.ranges(r.index()) {
			if p.From > p.To {
				t.Errorf("range %d is from %x to %x", p.ID, p.From, p.To)
			}
			if p.Retired {
				continue
			}
			covered += p.To - p.From + 1
		}
		if covered != 0 || !r.serves() {
			t.Errorf("the ranges have %x places more than there are, serving: %t", covered, r.serves())
		}
	})
}

// sparse answers every second page without shards, as a store does that has looked at many others.
type sparse struct{ *protocoltest.Store }

func (s *sparse) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error) {
	if cut := len(from) - 1; cut >= 0 && from[cut] == '!' {
		return s.Store.Ungrouped(ctx, x, p, from[:cut], limit)
	} else if cut >= 0 {
		return store.UngroupedPage{At: s.ReadTime(), Next: from + "!"}, nil
	}
	return s.Store.Ungrouped(ctx, x, p, from, limit)
}

// The reading of a slow range keeps its lease, and the pauses between its pages are short.
func TestASlowRangeKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds["embedded"])
		r.fold(pages(250, 5, 1))
		r.change(store.CreateIndex)
		for range 2 {
			_, stop := r.worker(Config{Rate: 1, Ranges: 1})
			defer stop()
		}
		began := time.Now()
		r.await("serving", 20*time.Minute, r.serves)
		if took := time.Since(began); took < 4*time.Minute {
			t.Errorf("250 shards at one a second took %s", took)
		}
		if n := len(r.ranges(r.index())); n != 1 {
			t.Errorf("%d ranges: the lease was lost", n)
		}
	})
}

// An index that makes errors does not keep another one from being built. A worker waits between errors.
func TestAnErrorOfOneIndexLeavesTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds["embedded"])
		r.fold(pages(50, 5, 1))
		a := r.change(store.CreateIndex, store.Index{Name: "a", Match: "x:*", Group: "x"})
		r.change(store.CreateIndex)
		failing := &failing{Store: r.store, index: a.Number}
		x := New(failing, Config{WorkerID: "w", Logger: quiet})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); x.Run(ctx) }()
		defer func() { cancel(); <-done }()
		r.await("serving", time.Minute, r.serves)
		before := failing.calls.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := failing.calls.Load() - before; got > 200 || got < 10 {
			t.Errorf("%d tries in an hour", got)
		}
		if got, want := x.Stats().Failures, failing.calls.Load(); got != want {
			t.Errorf("%d failures are counted, want %d", got, want)
		}
	})
}

type failing struct {
	*protocoltest.Store
	index int64
	calls atomic.Int64
}

func (f *failing) Ranges(ctx context.Context, index int64) ([]store.IndexRange, error) {
	if index == f.index {
		f.calls.Add(1)
		return nil, errors.New("no answer")
	}
	return f.Store.Ranges(ctx, index)
}

// A remainder beyond int64 is exact.
func TestRemaindersBeyondInt64(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds["embedded"])
		want := int128.Of(-5)
		for i := range 3 { // one shard each
			r.part = 3 * i
			r.fold(map[string]int64{"page:s1:a": math.MaxInt64 - 1})
			want = want.Add(int128.Of(math.MaxInt64 - 1))
		}
		r.fold(map[string]int64{"page:s1:c": -5, "page:s2:c": 7})
		r.change(store.CreateIndex)
		_, stop := r.worker(Config{Ranges: 1})
		defer stop()
		r.await("serving", time.Minute, r.serves)
		view := r.store.View()
		defer view.Close()
		values, err := view.Lookup(t.Context(), []store.Key{{Counter: "=site:s1", Shard: store.RecordKey}, {Counter: "=site:s2", Shard: store.RecordKey}})
		if err != nil || values[0].Remainder != want || values[1].Remainder != int128.Of(7) {
			t.Errorf("records %+v, %v; want remainders of %d and 7", values, err, want)
		}
	})
}
