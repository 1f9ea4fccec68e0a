package reader_test

import (
	"errors"
	"testing"
	"time"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// A reader asks the store again before it says that a counter has no series: the rule may be new.
func TestARuleSinceTheLastCheck(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		now := time.Now()
		q := reader.SeriesQuery{Counters: []string{"page:a"}, From: now.Add(-30 * time.Minute), To: now, Step: step(t, "15m")}
		_, err := r.rdr.Series(t.Context(), q)
		if none, ok := errors.AsType[*reader.NoSeriesError](err); !ok || none.Counter != "page:a" {
			t.Errorf("without a rule: %v, want a *NoSeriesError of page:a", err)
		}
		rule := store.RuleChange{Pattern: "page:*", Keep: store.Retention{Quarters: 400 * 24 * time.Hour}}
		if _, err := r.store.ChangeRules(t.Context(), rule); err != nil {
			t.Fatal(err)
		}
		if got, err := r.rdr.Series(t.Context(), q); err != nil || len(got.Rows) == 0 {
			t.Errorf("with a rule since the last check: %+v, %v; want rows", got, err)
		}
	})
}
