package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

var errLost = errors.New("the answer is lost")

func fold(t *testing.T, s store.Store, counter string, delta int64) {
	t.Helper()
	c := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta(counter, 0, delta)}, Rules: store.AnyRules}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func look(t *testing.T, s store.Store, counter string) store.Sum {
	t.Helper()
	v := s.View()
	defer v.Close()
	keys := []store.Key{{Counter: counter, Shard: store.RecordKey}, {Counter: counter}}
	values, err := v.Lookup(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return store.Sum{Exists: values[0].Exists, Sum: values[1].Count, ResetState: values[0].Reset, At: v.ReadTime()}
}

func remove(t *testing.T, s store.Store, counter string) {
	t.Helper()
	sum := look(t, s, counter)
	now := time.Now()
	id := wire.ResetID(counter, now.String())
	if _, err := s.ResetCounter(t.Context(), store.ResetRequest{ID: id, Counter: counter, Look: sum, Delete: true, At: now, ExpireAt: now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
}

// Deleted counters that a rule keeps are not in the way of others.
func TestSweepsGoBeyondKeptCounters(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Kind: store.KindJournal, Pattern: "kept*", Keep: store.Retention{Entries: store.MinKeep}}); err != nil {
		t.Fatal(err)
	}
	for i := range 10_001 {
		name := fmt.Sprint("kept", i)
		if i == 10_000 {
			name = "last"
		}
		if err := s.Grow(t.Context(), []store.Growth{{Counter: name, Shards: 1}}); err != nil {
			t.Fatal(err)
		}
		remove(t, s, name)
	}
	removed := 0
	for range 4 {
		n, err := s.SweepCounters(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		removed += n
	}
	if removed != 1 {
		t.Errorf("4 sweeps removed %d counters, want 1", removed)
	}
}

// A day or record that cannot be read does not stop the removal of others.
func TestSweepsGoBeyondDamage(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pebble", "postgresql"} {
		s := open(t, limits[name])
		if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Quarters: store.MinKeep}}); err != nil {
			t.Fatal(err)
		}
		old := wire.MinuteOf(time.Now()) - 9*store.DayMinutes
		for i := range 120 {
			foldMinutes(t, s, fmt.Sprint("a", i), old)
		}
		foldMinutes(t, s, "b", old+store.DayMinutes)
		all := s.stored(t, "day")
		s.db.OnCall(func(c *memory.Call) (a memory.Answer) {
			if c.Op == memory.TxGet && slices.Contains(c.Keys, all[0]) {
				a.Err = errLost
			}
			return a
		})
		err := s.SweepSeries(t.Context())
		if left := s.stored(t, "day"); !errors.Is(err, errLost) || !slices.Equal(left, all[:min(50, len(left))]) {
			t.Errorf("%s: after a sweep beside a damaged row %d of %d days are left, %v; want those of a transaction", name, len(left), len(all), err)
		}
	}
	l := limits["pebble"]
	l.Keys = 2
	s := open(t, l)
	for _, counter := range []string{"a", "b", "c"} {
		grow(t, s, counter)
		remove(t, s, counter)
	}
	pages, removed := 0, 0
	s.db.OnCall(func(c *memory.Call) (a memory.Answer) {
		if c.Op == memory.Due {
			if pages++; pages%2 == 0 {
				a.Err = errLost
			}
		}
		return a
	})
	for range 4 {
		n, err := s.SweepCounters(t.Context(), 0)
		if removed += n; !errors.Is(err, errLost) {
			t.Errorf("a sweep with a page that cannot be read: %v", err)
		}
	}
	if removed != 2 {
		t.Errorf("4 sweeps removed %d counters of the first page, want 2", removed)
	}
}

// A counter that was counted after a deletion, and deleted again, stays for as many sweeps as any other: an aggregator remembers its
// record.
func TestSweepsCountOneDeletion(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	sweep := func(times, want int) {
		t.Helper()
		removed := 0
		for range times {
			n, err := s.SweepCounters(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			removed += n
		}
		if removed != want {
			t.Errorf("%d sweeps removed %d counters, want %d", times, removed, want)
		}
	}
	again := func() {
		t.Helper()
		if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 1}}); err != nil {
			t.Fatal(err)
		}
		fold(t, s, "a", 1)
		remove(t, s, "a")
	}
	again()
	sweep(3, 0)
	again()
	sweep(3, 0)
	sweep(1, 1)
	again() // right after the sweep that removed it
	sweep(3, 0)
	sweep(1, 1)
}

// No fold from before a change of the settings takes effect after its moment, and no check that ends after it shows the settings before.
func TestChangesOfRulesAreAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(context.Context, tested) (store.Settings, error){
		"rules": func(ctx context.Context, s tested) (store.Settings, error) {
			return s.ChangeRules(ctx, store.RuleChange{Kind: store.KindJournal, Pattern: "*", Keep: store.Retention{Entries: store.MinKeep}})
		},
		"window": func(ctx context.Context, s tested) (store.Settings, error) { return s.SetWindow(ctx, 3*time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, limits["pebble"])
			before, err := s.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			goOn := make(chan struct{})
			s.db.OnCall(func(c *memory.Call) memory.Answer {
				if c.Op == memory.Transact {
					<-goOn
				}
				return memory.Answer{}
			})
			var all sync.WaitGroup
			all.Go(func() {
				if _, err := change(t.Context(), s); err != nil {
					t.Errorf("a change of the %s: %v", name, err)
				}
			})
			synctest.Wait()
			all.Go(func() {
				_, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}, Rules: before.Settings.Version})
				if !errors.Is(err, store.ErrOutdated) {
					t.Errorf("a fold during a change of the %s: %v", name, err)
				}
			})
			all.Go(func() {
				if after, err := s.Check(t.Context()); err != nil || after.Settings.Version == before.Settings.Version {
					t.Errorf("a check during a change of the %s: version %d, %v", name, after.Settings.Version, err)
				}
			})
			synctest.Wait()
			close(goOn)
			all.Wait()
		})
	}
}

// A change of rules begins when the folds under way have ended: its moment is after them.
func TestChangesOfRulesWait(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	changing, inside := make(chan struct{}), make(chan struct{})
	changes := sync.OnceFunc(func() { close(changing) })
	s.db.OnCall(func(c *memory.Call) memory.Answer {
		switch c.Op {
		case memory.TxGet:
			changes()
		case memory.Commit:
			close(inside)
			select {
			case <-changing:
				t.Error("rules change beside a fold")
			case <-time.After(20 * time.Millisecond): // a slow machine only finds less
			}
		}
		return memory.Answer{}
	})
	var all sync.WaitGroup
	all.Go(func() { fold(t, s, "a", 1) })
	<-inside
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Quarters: store.MinKeep}}); err != nil {
		t.Errorf("ChangeRules: %v", err)
	}
	all.Wait()
}

// A process that was suspended in a transaction, or in the pause before a further attempt, changes nothing: the id of its take may be
// forgotten.
func TestNoAttemptAfterASuspension(t *testing.T) {
	t.Parallel()
	for name, suspended := range map[string]int{"before the first read": 1, "in the pause": 3, "at its end": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, calls := open(t, limits["postgresql"]), 0
			s.db.OnCall(func(c *memory.Call) (a memory.Answer) {
				if c.Op != memory.TxGet && c.Op != memory.Transact {
					return a
				}
				if calls++; calls == suspended {
					s.off.Add(int64(time.Hour))
				}
				if calls == 2 {
					a.Err = engine.ErrConflict
				}
				return a
			})
			take := store.Take{ID: wire.SequenceID("a", "id"), Count: 1, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}
			if given, err := s.NextValues(t.Context(), "a", []store.Take{take}); !errors.Is(err, countmill.ErrUnavailable) || calls != suspended {
				t.Errorf("values %v, %v, after %d calls", given, err, calls)
			}
		})
	}
}

// A call whose answer was lost may be repeated, and calls of others in between make a transaction begin again.
func TestRepeats(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, l)
			if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 1}}); err != nil {
				t.Fatal(err)
			}
			fold(t, s, "a", 5)
			sum := look(t, s, "a")
			now := time.Now()
			r := store.ResetRequest{ID: wire.ResetID("a", "id"), Counter: "a", Look: sum, At: now, ExpireAt: now.Add(time.Hour)}
			n := 0
			s.db.OnCall(func(c *memory.Call) memory.Answer {
				if c.Op != memory.Transact {
					return memory.Answer{}
				}
				switch n++; n {
				case 1, 2:
					return memory.Answer{Err: engine.ErrConflict}
				case 3:
					return memory.Answer{Err: errLost, Applied: true}
				}
				return memory.Answer{}
			})
			if _, err := s.ResetCounter(t.Context(), r); !errors.Is(err, errLost) {
				t.Errorf("a lost answer after two conflicts: %v", err)
			}
			fold(t, s, "a", 100)
			if done, err := s.ResetCounter(t.Context(), r); err != nil || done.Removed != int128.Of(5) || !done.At.Equal(sum.At) {
				t.Errorf("the repeat: %+v, %v; want 5", done, err)
			}
			if got := look(t, s, "a"); got.Sum.Sub(got.Baseline) != int128.Of(100) || n != 3 {
				t.Errorf("a total of %d after %d transactions, want 100 after 3", got.Sum.Sub(got.Baseline), n)
			}
		})
	}
}
