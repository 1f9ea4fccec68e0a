package reader_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// riseHook calls after when Risen has answered.
type riseHook struct {
	*fakestore.Store
	after func()
}

func (h *riseHook) Risen(q *store.SumsQuery, m store.RiseMark) store.Rise {
	rise := h.Store.Risen(q, m)
	if f := h.after; f != nil {
		h.after = nil
		f()
	}
	return rise
}

// A fold comes right after the question how far sums have risen. If the view came later than that, the answer would show
// the fold's time without its counter. The question is asked at several places.
func TestAFoldRightBehindTheRise(t *testing.T) {
	t.Parallel()
	for skipped := range 4 {
		synctest.Test(t, func(t *testing.T) { foldBehindRise(t, skipped) })
	}
}

func foldBehindRise(t *testing.T, skipped int) {
	w := newWorld(t, 1, fakestore.Options{CertainOutcome: true, GrowsInFold: true, Entities: 1 << 20})
	for i := range 40 {
		w.add(map[string]int64{"page:s1:/" + string(rune('A'+i)): int64(100 + i)})
	}
	h := &riseHook{Store: w.Store}
	r := newReader(t, h, nil, reader.Config{})
	defer r.Close()
	q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites"}, N: 2}
	if _, err := r.Top(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	var folded time.Time
	var fold func()
	fold = func() {
		if skipped--; skipped >= 0 {
			h.after = fold
			return
		}
		w.add(map[string]int64{"page:s1:/new": 1_000_000})
		folded = h.Moment()
	}
	h.after = fold
	time.Sleep(time.Second)
	top, err := r.Top(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if !folded.IsZero() && top.Complete && !top.AsOf.Before(folded) && top.Top[0].Counter != "page:s1:/new" {
		t.Errorf("complete as of %s without a counter that was first at %s: %+v", top.AsOf, folded, top)
	}
}
