package indexer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
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
