package indexer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// gone checks that nothing of a deleted index is left.
func (r *rig) gone(x *store.Index) {
	r.t.Helper()
	if n := len(r.ranges(x)); n > 0 {
		r.t.Errorf("%d ranges are left", n)
	}
	for key, part := range r.store.Grouped(x.Number) {
		if part != 0 {
			r.t.Errorf("%d of %v are still grouped", part, key)
		}
	}
	totals := r.store.Totals()
	for counter := range totals {
		if x.HasGroup(counter) && (totals[counter] != 0 || r.store.Record(counter).Shards > 0) {
			r.t.Errorf("%s is left: %d", counter, totals[counter])
		}
	}
}

// A deleted index is removed when no reader serves its groups any more and no aggregator folds by it.
func TestAnIndexIsDeleted(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(300, 120, 1))
		r.change(store.CreateIndex)
		_, stop := r.worker(Config{Page: 50, Ranges: 4})
		defer stop()
		r.await("serving", settled, r.serves)
		r.fold(pages(200, 120, 5))
		old := r.settings()
		counters := r.store.Totals()
		x := r.change(store.DeleteIndex)
		time.Sleep(store.SettingsMaxAge - 5*time.Second)
		synctest.Wait()
		if at := r.store.ReadTime(); r.store.Totals()["=site:s1"] != counters["=site:s1"] {
			t.Errorf("a group changed by %s, within a minute of the deletion", at)
		}
		r.apply(r.commit(old, pages(200, 120, 7))) // late, where the store takes it
		r.await("the removal", settled, func() bool { return r.index() == nil })
		r.gone(x)
		for counter, total := range r.store.Totals() {
			if !x.HasGroup(counter) && total < counters[counter] {
				t.Errorf("%s lost %d", counter, counters[counter]-total)
			}
		}
	})
}

// A new index under the name of a deleted one begins anew.
func TestAnIndexIsMadeAgain(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(100, 7, 1))
		first := r.change(store.CreateIndex)
		for range 2 {
			_, stop := r.worker(Config{Page: 10})
			defer stop()
		}
		r.await("serving", settled, r.serves)
		r.fold(pages(100, 7, 10))
		r.change(store.DeleteIndex)
		r.await("the removal", settled, func() bool { return r.index() == nil })
		r.fold(pages(100, 7, 100))
		second := r.change(store.CreateIndex)
		r.fold(pages(100, 7, 1000))
		if second.Number <= first.Number || r.serves() {
			t.Errorf("number %d after %d, serving: %t", second.Number, first.Number, r.serves())
		}
		r.await("serving again", settled, r.serves)
		r.check("serving again", true)
		if x := r.index(); !x.Checked.After(second.Since) {
			t.Errorf("checked at %s, since %s", x.Checked, second.Since)
		}
	})
}

// An index that is deleted while workers build it is removed, also if they are stopped meanwhile.
func TestAnIndexIsDeletedWhileItIsBuilt(t *testing.T) {
	forKinds(t, func(t *testing.T, r *rig) {
		r.fold(pages(300, 60, 1))
		x := r.change(store.CreateIndex)
		var deleted atomic.Bool
		r.store.On(fakestore.Ungrouped, func(n int) fakestore.Answer {
			if n == 5 {
				x = r.change(store.DeleteIndex)
				deleted.Store(true)
				time.Sleep(10 * time.Minute)
			}
			return fakestore.OK
		})
		for range 2 {
			_, stop := r.worker(Config{Page: 20, Ranges: 4, CallTimeout: time.Hour})
			defer stop()
		}
		r.await("the removal", time.Hour, func() bool { return deleted.Load() && r.index() == nil })
		time.Sleep(time.Hour)
		r.gone(x)
	})
}

// Deleted counters of an index stay until it is gone: a recheck would not find their increments.
func TestSweepsLeaveTheCountersOfAnIndex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds["embedded"])
		r.fold(pages(20, 2, 1))
		r.change(store.CreateIndex)
		x, stop := r.worker(Config{Recheck: time.Hour})
		defer stop()
		r.await("serving", time.Minute, r.serves)
		at := r.store.ReadTime()
		look := store.Sum{Exists: true, Sum: int128.Of(r.store.Total("page:s1:1")), At: at}
		if _, err := r.store.ResetCounter(t.Context(), store.ResetRequest{Counter: "page:s1:1", ID: resetID, Delete: true, Look: look, At: at, ExpireAt: at.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * store.SweepAfter)
		synctest.Wait()
		if n, err := r.store.SweepCounters(t.Context(), store.SweepAfter); n != 0 || err != nil {
			t.Errorf("%d counters swept, %v", n, err)
		}
		checked := r.index().Checked
		r.await("the recheck", 3*time.Hour, func() bool { return r.index().Checked.After(checked) })
		if r.check("after a sweep", true); x.Stats().Corrected != 0 {
			t.Error("a recheck corrected a group")
		}
		r.change(store.DeleteIndex)
		r.await("the removal", time.Hour, func() bool { return r.index() == nil })
		swept := 0
		for range 4 { // a sweep looks a few times where it does not trust the clock
			n, err := r.store.SweepCounters(t.Context(), store.SweepAfter)
			if swept += n; err != nil {
				t.Fatal(err)
			}
		}
		if swept != 1 {
			t.Errorf("%d counters swept without the index, want 1", swept)
		}
	})
}

var resetID = func() (id [16]byte) { id[0] = 7 << 4; return id }()

// At every state of the store, with any errors, kills and stops of workers, a serving index is right, and
// work comes to an end.
func TestIndexesUnderRandomTrouble(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 5
	}
	first := rand.Uint64()
	for i := range seeds {
		seed := first + uint64(i)
		for name, opts := range kinds {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				bubble(t, func(t *testing.T) { newTrouble(t, seed, opts).run() })
			})
		}
	}
}

// A trouble is a run with random errors.
type trouble struct {
	*rig
	rng    *rand.Rand
	mu     sync.Mutex
	faults *rand.Rand // of the workers' calls, guarded by mu
	calm   bool       // guarded by mu
	late   []lateCommit
	stops  []func()
	killed sync.WaitGroup
	cfg    Config
}

// A lateCommit is on its way to the store.
type lateCommit struct {
	c   *store.Commit
	due time.Time
}

func newTrouble(t *testing.T, seed uint64, opts fakestore.Options) *trouble {
	tr := &trouble{rig: newRig(t, opts), rng: rand.New(rand.NewPCG(seed, 0)), faults: rand.New(rand.NewPCG(seed, 1))}
	rate := []int{5, 15, 40}[tr.rng.IntN(3)]
	answers := []fakestore.Answer{
		fakestore.UnknownApplied, fakestore.UnknownNotApplied, fakestore.SlowApplied, fakestore.SlowNotApplied, fakestore.Deployment,
	}
	for _, op := range []fakestore.Op{
		fakestore.Ranges, fakestore.SwapRanges, fakestore.Ungrouped, fakestore.SetRemainders, fakestore.RemaindersOf, fakestore.DropGrouped, fakestore.DropGroups,
	} {
		tr.store.On(op, func(int) fakestore.Answer {
			tr.mu.Lock()
			ok, stopped, which := tr.calm || tr.faults.IntN(rate) > 0, tr.faults.IntN(4) == 0, tr.faults.IntN(15)
			tr.mu.Unlock()
			switch {
			case ok:
				return fakestore.OK
			case stopped: // the process is, on either side of its lease
				time.Sleep([]time.Duration{20 * time.Second, 100 * time.Second, 10 * time.Minute}[which%3])
				return fakestore.OK
			}
			return answers[which%5]
		})
	}
	tr.cfg = Config{
		Ranges: 1 + tr.rng.IntN(5), Page: 1 + tr.rng.IntN(40), MostGroups: 1 + tr.rng.IntN(40),
		Recheck: []time.Duration{0, 30 * time.Minute}[tr.rng.IntN(2)], CallTimeout: time.Hour,
	}
	return tr
}

func (tr *trouble) run() {
	defer func() {
		for _, stop := range tr.stops {
			stop()
		}
		tr.killed.Wait()
	}()
	tr.fold(pages(100+tr.rng.IntN(200), 40, 1))
	for range 1 + tr.rng.IntN(3) {
		tr.startWorker()
	}
	for round := range 1 + tr.rng.IntN(2) {
		tr.change(store.CreateIndex)
		tr.storm(fmt.Sprint("round ", round))
		tr.quiet(true)
		tr.await("serving", 10*time.Hour, func() bool { tr.arrive(); return tr.serves() })
		tr.quiet(false)
		tr.check("serving", true)
		tr.storm(fmt.Sprint("round ", round, ", serving"))
		if round == 0 && tr.rng.IntN(2) == 0 {
			continue
		}
		x := tr.change(store.DeleteIndex)
		tr.storm(fmt.Sprint("round ", round, ", deleted"))
		tr.quiet(true)
		tr.await("the removal", 10*time.Hour, func() bool { tr.arrive(); return tr.index() == nil })
		time.Sleep(time.Hour) // for workers that were stopped meanwhile
		tr.gone(x)
		tr.quiet(false)
	}
}

func (tr *trouble) quiet(calm bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.calm = calm
}

func (tr *trouble) startWorker() {
	_, stop := tr.worker(tr.cfg)
	tr.stops = append(tr.stops, stop)
}

// storm lets workers be killed, and folds come: now and late, by settings of now and of up to a minute ago.
func (tr *trouble) storm(what string) {
	known := []store.Settings{tr.settings()}
	rng := rand.New(rand.NewPCG(tr.rng.Uint64(), 0))
	for range 20 + rng.IntN(40) {
		known = append(known, tr.settings())
		s := known[max(0, len(known)-1-rng.IntN(4))] // 14 s each: of the last minute
		c := tr.commit(s, pages(1+rng.IntN(60), 40, rng.Int64N(2000)-1000))
		if rng.IntN(2) == 0 {
			tr.apply(c)
		} else {
			tr.late = append(tr.late, lateCommit{c, time.Now().Add(time.Duration(rng.Int64N(int64(store.MaxTransaction))))})
		}
		if rng.IntN(8) == 0 {
			i := rng.IntN(len(tr.stops))
			tr.killed.Go(tr.stops[i]) // it may be in a call that takes long
			tr.stops = slices.Delete(tr.stops, i, i+1)
			tr.startWorker()
		}
		time.Sleep(time.Duration(rng.Int64N(int64(14 * time.Second))))
		synctest.Wait()
		tr.arrive()
		tr.check(what, tr.serves())
	}
}

// arrive applies the late commits that are due.
func (tr *trouble) arrive() {
	tr.late = slices.DeleteFunc(tr.late, func(l lateCommit) bool {
		if time.Now().Before(l.due) {
			return false
		}
		tr.apply(l.c)
		return true
	})
}
