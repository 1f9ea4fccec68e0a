package recount_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// Tend leaves a rule with too many counters to a person, and reports it until somebody has written its balances, or ended it. Groups
// do not count.
func TestTendIsBounded(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		const most = 10
		tended := func(wantLacking int) int {
			t.Helper()
			before := len(r.Store.Journaled())
			lacking, err := r.Recounter(r.Store, recount.Config{MostTended: most}).Tend(t.Context(), quiet)
			if err != nil {
				t.Fatal(err)
			}
			if lacking != wantLacking {
				t.Errorf("%d rules lack balances, want %d", lacking, wantLacking)
			}
			return len(r.Store.Journaled()) - before
		}
		grow := func(from, to int, format string) {
			t.Helper()
			var growths []store.Growth
			for i := from; i < to; i++ {
				growths = append(growths, store.Growth{Counter: fmt.Sprintf(format, i), Shards: 1})
			}
			if err := r.Grow(t.Context(), growths); err != nil {
				t.Fatal(err)
			}
		}
		add := func(pattern string) {
			t.Helper()
			r.Change(keepJournal(t, pattern, "90d"))
			r.pass(2 * store.RulesSettle)
		}
		grow(0, most+1, countmill.GroupMark+"other:%d")
		grow(0, most, "z:%d")
		add("*")
		if n := tended(0); n == 0 {
			t.Errorf("no opening balance was written for %d counters", most)
		}
		add("z:*")
		grow(most, most+1, "z:%d")
		if n := tended(1); n != 0 {
			t.Errorf("%d records of opening balances for %d counters, want none", n, most+1)
		}
		r.Recount(recount.Query{Prefix: "z:", Open: true})
		tended(0)
		r.pass(46 * 24 * time.Hour) // more than half of KEEP
		tended(2)                   // * and z:*
		r.Change(store.RuleChange{Kind: store.KindJournal, Pattern: "z:*", Remove: true})
		r.pass(2 * store.RulesSettle)
		tended(1)
	})
}
