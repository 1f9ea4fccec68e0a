package recount_test

import (
	"fmt"
	"testing"

	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// oldCounters makes counters that are older than their rule.
func oldCounters(t *testing.T, r *rig, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("old:%d", i)
		if err := r.Grow(t.Context(), []store.Growth{{Counter: name, Shards: 1}}); err != nil {
			t.Fatal(err)
		}
		damage(t, r, name, 5)
	}
	r.Change(keepJournal(t, "old:*", "30d"))
	r.pass(2 * store.RulesSettle)
}

// Each reason has a name, however many names another reason has.
func TestEachReasonHasAName(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		oldCounters(t, r, 300)
		damage(t, r, "without:1", 5)
		if err := r.Grow(t.Context(), []store.Growth{{Counter: "without:1", Shards: 1}}); err != nil {
			t.Fatal(err)
		}
		got, err := r.Recounter(r.Store, recount.Config{}).Recount(t.Context(), recount.Query{})
		if err != nil {
			t.Fatal(err)
		}
		named := make(map[string]bool)
		for _, u := range got.Unjudged {
			named[u.Reason] = true
		}
		if len(got.Reasons) != 2 || len(named) != 2 || len(got.Unjudged) != 101 {
			t.Errorf("%d names for %d of the reasons %v, want 101 for 2", len(got.Unjudged), len(named), got.Reasons)
		}
	})
}

// An opening balance takes the present sums as right. A recount says so before it advises one, and advises none after it wrote one.
func TestAdviceToWriteOpeningBalances(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		oldCounters(t, r, 1)
		for _, want := range []struct {
			open bool
			text string
		}{
			{false, "[no opening balance: look for damage with countmill verify, then run recount --opening, which takes the present sums as right:1]"},
			{true, "[no opening balance until now: this recount took the present sum as right:1]"},
			{false, "[]"},
		} {
			if got := r.Recount(recount.Query{Prefix: "old:", Open: want.open}); fmt.Sprint(got.Reasons) != "map"+want.text {
				t.Errorf("with opening %t: %v, want %s", want.open, got.Reasons, want.text)
			}
		}
	})
}
