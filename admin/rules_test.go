package admin_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

var keep = store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * 24 * time.Hour}

func rulesOf(t *testing.T, opts protocoltest.Options) (*admin.Admin, *protocoltest.Store) {
	t.Helper()
	c := &counters{Store: protocoltest.New(opts)}
	a, err := admin.New(c, c, admin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return a, c.Store
}

// A change whose answer was lost is repeated, and is made once.
func TestRulesAreChangedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, st := rulesOf(t, protocoltest.Options{})
		st.On("tx meta", protocoltest.Script(protocoltest.UnknownApplied, protocoltest.UnknownNotApplied))
		set, err := a.AddRule(t.Context(), store.KindSeries, "a*", keep)
		if err != nil || set.Version != 2 || set.Rules.SeriesOf("ab") == nil {
			t.Fatalf("AddRule: got %+v, %v", set, err)
		}
		if got, err := a.Rules(t.Context()); err != nil || got.Version != 2 || got.Rules.SeriesOf("a").Keep != keep {
			t.Errorf("Rules: got %+v, %v", got, err)
		}
		filled := store.Period{From: time.Now().Add(-time.Hour), To: st.Now()}
		if set, err = a.FillSeries(t.Context(), "a*", filled); err != nil || !set.Rules.SeriesOf("ab").Filled.To.Equal(filled.To) {
			t.Errorf("FillSeries: got %+v, %v", set, err)
		}
		if set, err = a.AddRule(t.Context(), store.KindJournal, "a*", store.Retention{Entries: 400 * 24 * time.Hour}); err != nil || set.Rules.JournalOf("ab") == nil {
			t.Errorf("AddRule of the journal: got %+v, %v", set, err)
		}
		if set, err = a.RemoveRule(t.Context(), store.KindJournal, "a*"); err != nil || set.Rules.JournalOf("ab") != nil {
			t.Errorf("RemoveRule of the journal: got %+v, %v", set, err)
		}
		if set, err = a.RemoveRule(t.Context(), store.KindSeries, "a*"); err != nil || set.Rules.SeriesOf("a") != nil {
			t.Errorf("RemoveRule: got %+v, %v", set, err)
		}
	})
}

// OnRules is called once the rules are changed, also if they were so before, and only then.
func TestChangesOfRulesAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counters{Store: protocoltest.New(protocoltest.Options{})}
		var seen []int64
		a, err := admin.New(c, c, admin.Config{OnRules: func(ctx context.Context) {
			checked, err := c.Check(ctx)
			if _, bounded := ctx.Deadline(); err != nil || !bounded {
				t.Errorf("got %v, with a deadline: %t", err, bounded)
			}
			seen = append(seen, checked.Settings.Version)
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := a.AddRule(t.Context(), store.KindSeries, "a*", keep); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.RemoveRule(t.Context(), store.KindSeries, "b"); !errors.Is(err, store.ErrNoRule) {
			t.Errorf("got %v", err)
		}
		if _, err := a.RemoveRule(t.Context(), store.KindSeries, "a*"); err != nil {
			t.Fatal(err)
		}
		if want := []int64{2, 2, 3}; !slices.Equal(seen, want) {
			t.Errorf("reported at versions %v, want %v", seen, want)
		}
	})
}

func TestRulesThatCannotBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, st := rulesOf(t, protocoltest.Options{})
		for _, err := range []struct{ got, want error }{
			{second(a.AddRule(t.Context(), store.KindSeries, "", keep)), countmill.ErrInvalid},
			{second(a.AddRule(t.Context(), store.KindSeries, "a", store.Retention{})), countmill.ErrInvalid},
			{second(a.RemoveRule(t.Context(), store.KindSeries, "a")), store.ErrNoRule},
			{second(a.AddRule(t.Context(), store.KindJournal, "a", store.Retention{})), countmill.ErrInvalid},
			{second(a.RemoveRule(t.Context(), store.KindJournal, "a")), store.ErrNoRule},
		} {
			if !errors.Is(err.got, err.want) {
				t.Errorf("got %v, want %v", err.got, err.want)
			}
		}
		if calls := st.Calls("tx meta"); calls != 5 {
			t.Errorf("refused changes were tried %d times, want 5", calls)
		}
		st.On("tx meta", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		if _, err := a.AddRule(t.Context(), store.KindSeries, "a", keep); !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("a store that never answers: got %v", err)
		}
		st.On("check", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		if _, err := a.Rules(t.Context()); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("rules that cannot be read: got %v", err)
		}
	})
}

func second(_ store.Settings, err error) error { return err }
