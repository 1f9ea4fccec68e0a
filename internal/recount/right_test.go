package recount_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Right sums that could be taken for wrong ones.

// An id that is used again when its marker is gone counts again, in the total and in the journal.
func TestForgottenIDs(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		id := fold(t, r, total, 7)
		forget(r, 10)
		if err := r.Fold(id, wire.MinuteOf(r.Now()), map[string]int64{total: 7}); err != nil {
			t.Fatal(err)
		}
		if got := r.Recount(recount.Query{Prefix: total, Repair: true}); got.Counters != 1 || len(got.Findings) > 0 {
			t.Errorf("got %+v, want 1 counter and nothing found", got)
		}
		sums{total: 14}.want(t, r)
	})
}

// forget passes days, at the pace at which a store forgets that has no clock of its own.
func forget(r *rig, days int) {
	for range days * 24 * 3 {
		r.pass(20 * time.Minute)
		r.Settings()
	}
	r.Store.Expire()
}

// Increments of the past have the minute that their sender says, also if their id is used again.
func TestForgottenIDsOfThePast(t *testing.T) {
	t.Parallel()
	for name, ago := range map[string]time.Duration{"a day ago": 24 * time.Hour, "a month ago": 30 * 24 * time.Hour, "now": 0} {
		t.Run(name, func(t *testing.T) {
			forKinds(t, func(t *testing.T, r *rig) {
				id, at := r.NewID(), wire.MinuteOf(r.Now().Add(-ago))
				for range 3 {
					if err := r.Fold(id, at, map[string]int64{total: 7}); err != nil {
						t.Fatal(err)
					}
					forget(r, 9)
				}
				if got := r.Recount(recount.Query{Prefix: total, Repair: true}); got.Counters != 1 || len(got.Findings) > 0 {
					t.Errorf("got %+v, want 1 counter and nothing found", got)
				}
				sums{total: 21}.want(t, r)
			})
		})
	}
}

func keepJournal(t *testing.T, pattern, keep string) store.RuleChange {
	t.Helper()
	change, err := store.ParseRetention(store.KindJournal, keep)
	if err != nil {
		t.Fatal(err)
	}
	return store.RuleChange{Kind: store.KindJournal, Pattern: pattern, Keep: change}
}

func endJournal(pattern string) store.RuleChange {
	return store.RuleChange{Kind: store.KindJournal, Pattern: pattern, Remove: true}
}

// An opening balance right after a change of rules does not rely on records by the rules before, which go earlier.
func TestRecordsByOlderRules(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]store.RuleChange{"kept for longer": keepJournal(t, "billing:*", "400d"), "another one ended": endJournal(total)} {
		t.Run(name, func(t *testing.T) {
			forKinds(t, func(t *testing.T, r *rig) {
				r.Change(keepJournal(t, total, "1d"))
				if change.Pattern != total {
					r.Change(endJournal(total))
				}
				r.pass(2 * store.RulesSettle)
				fold(t, r, total, 7)
				r.Change(change)
				open := recount.Query{Prefix: total, Open: true}
				if _, err := r.Recounter(r.Store, recount.Config{}).Recount(t.Context(), open); err != nil {
					if !errors.Is(err, recount.ErrEarly) || r.Limits().RefusesOldRules {
						t.Fatalf("an opening balance right after the change: %v", err)
					}
					r.pass(2 * store.RulesSettle)
					r.Recount(open)
				}
				forget(r, 2)
				if change.Pattern != total {
					forget(r, 30)
				}
				if err := r.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := r.Recount(recount.Query{Prefix: total}); got.Counters != 1 || len(got.Findings) > 0 {
					t.Errorf("when the older records are gone: %+v, want 1 counter and nothing found", got)
				}
			})
		})
	}
}

// A beforeView store runs a function once, before its first view.
type beforeView struct {
	store.Store
	once *sync.Once
	do   func()
}

func (b beforeView) JournalView() store.JournalView {
	b.once.Do(b.do)
	return b.Store.JournalView()
}

// A rule that ends right before the view covers nothing.
func TestRuleEndsBeforeTheView(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, total, 7)
		end := func() {
			r.Change(endJournal("billing:*"))
			fold(t, r, total, 5)
		}
		got := r.RecountBy(r.Recounter(beforeView{r.Store, new(sync.Once), end}, recount.Config{}), recount.Query{Prefix: total})
		if got.Counters != 0 || len(got.Findings) > 0 || len(got.Reasons) != 1 {
			t.Errorf("got %+v, want a counter that is not judged", got)
		}
	})
}

// A nthCheck store runs a function once, before its nth look at the settings.
type nthCheck struct {
	store.Store
	n  *int
	do func()
}

func (s nthCheck) Check(ctx context.Context) (store.Checked, error) {
	if *s.n--; *s.n == 0 {
		s.do()
	}
	return s.Store.Check(ctx)
}

// A rule is changed between the view and the correction. Its new opening balance has the damage, so the correction does not come.
func TestRuleChangesBeforeTheCorrection(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, total, 7)
		damage(t, r, total, 5)
		before := 2 // the first is of the recount itself
		change := func() {
			r.Change(keepJournal(t, "billing:*", "60d"))
			r.pass(2 * store.RulesSettle)
			if _, err := r.Recounter(r.Store, recount.Config{}).Tend(t.Context(), quiet); err != nil {
				t.Error(err)
			}
		}
		got := r.RecountBy(r.Recounter(nthCheck{r.Store, &before, change}, recount.Config{}), recount.Query{Prefix: total, Repair: true})
		if len(got.Findings) != 1 || got.Findings[0].Fixed || !strings.Contains(got.Findings[0].Detail, "rules were changed") {
			t.Errorf("found %+v, want damage that was not corrected", got.Findings)
		}
		if got := r.Recount(recount.Query{Prefix: total}); got.Counters != 1 || len(got.Findings) > 0 {
			t.Errorf("by the new opening balance: %+v", got)
		}
	})
}

// A lateRows store removes records as early as it may, and rows later.
type lateRows struct {
	store.Store
	now func() time.Time
}

type lateRowsView struct {
	store.JournalView
	now func() time.Time
}

func (l lateRows) JournalView() store.JournalView { return lateRowsView{l.Store.JournalView(), l.now} }

func (v lateRowsView) JournalRecords(ctx context.Context, q store.JournalQuery) (store.JournalPage, error) {
	page, err := v.JournalView.JournalRecords(ctx, q)
	page.Records = slices.DeleteFunc(page.Records, func(r store.JournalRecord) bool { return !r.ExpireAt.After(v.now()) })
	return page, err
}

// An opening balance that is over is none, also while its row is still there.
func TestOpeningBalancesEnd(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, total, 7)
		r.pass(401 * 24 * time.Hour)
		got := r.RecountBy(r.Recounter(lateRows{r.Store, r.Now}, recount.Config{}), recount.Query{Prefix: total})
		for reason := range got.Reasons {
			if !strings.Contains(reason, "no opening balance") {
				t.Errorf("not judged, because %s", reason)
			}
		}
		if got.Counters != 0 || len(got.Reasons) != 1 {
			t.Errorf("got %+v, want a counter without an opening balance", got)
		}
	})
}

// An answer that says that nothing was done is right: a call that may not write opening balances yet corrects nothing either.
func TestNothingIsCorrectedWhereOpeningBalancesComeTooEarly(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		if r.Limits().RefusesOldRules {
			t.Skip("openings never come too early")
		}
		fold(t, r, total, 7)
		damage(t, r, total, 5)
		r.Change(keepJournal(t, "new:*", "60d"))
		_, err := r.Recounter(r.Store, recount.Config{}).Recount(t.Context(), recount.Query{Prefix: total, Repair: true, Open: true})
		if !errors.Is(err, recount.ErrEarly) || errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrEarly", err)
		}
		if got := r.Recount(recount.Query{Prefix: total}); len(got.Findings) != 1 {
			t.Errorf("after a call that did nothing: %+v, want the damage", got)
		}
	})
}

// A call that has corrected a sum, or maybe has, does not say that nothing was done if its opening balance fails then.
func TestOpeningBalancesFailAfterCorrections(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, total, 7)
		damage(t, r, total, 5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		openingBalance := 3 // after the checks of the recount itself, and of the correction
		x := r.Recounter(endedCheck{nthCheck{r.Store, &openingBalance, cancel}}, recount.Config{})
		if _, err := x.Recount(ctx, recount.Query{Prefix: total, Repair: true, Open: true}); !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrOutcomeUnknown", err)
		}
		if got := r.Recount(recount.Query{Prefix: total}); len(got.Findings) != 0 {
			t.Errorf("the damage was not corrected: %+v", got)
		}
	})
}

// An endedCheck answers no Check whose context has ended.
type endedCheck struct{ nthCheck }

func (s endedCheck) Check(ctx context.Context) (store.Checked, error) {
	checked, err := s.nthCheck.Check(ctx)
	return checked, cmp.Or(ctx.Err(), err)
}
