package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
)

var keep = store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * day}

func addRule(t testing.TB, s store.Store, pattern string, keep store.Retention) store.Settings {
	t.Helper()
	return changeSettings(t, fmt.Sprintf("ChangeRules(%q)", pattern), func() (store.Settings, error) {
		return s.ChangeRules(t.Context(), store.RuleChange{Pattern: pattern, Keep: keep})
	})
}

func testRulesChange(t *testing.T, su *suite) {
	s := su.open(t)
	before := check(t, s).Settings
	set := addRule(t, s, "a*", keep)
	rule := set.Rules.SeriesOf("ab")
	if set.Version != before.Version+1 || set.Window != before.Window || rule == nil || rule.Keep != keep || rule.Since.IsZero() {
		t.Fatalf("a rule was added to %+v: got %+v with %+v", before, set, rule)
	}
	wantRules(t, "after a change", s, set)
	if again := addRule(t, s, "a*", keep); again.Version != set.Version {
		t.Errorf("the same rule again is version %d, want %d", again.Version, set.Version)
	}
	filled, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "a*", Filled: store.Period{From: rule.Since.Add(-day), To: rule.Since.Add(-time.Hour)}})
	if err != nil || filled.Version != set.Version+1 || !filled.Rules.SeriesOf("a").Filled.To.Equal(rule.Since.Add(-time.Hour)) {
		t.Errorf("the rule was filled: got %+v, %v", filled, err)
	}
	wantRules(t, "after it was filled", s, filled)
	set = filled
	ended, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "a*", Remove: true})
	if err != nil || ended.Version != set.Version+1 || ended.Rules.SeriesOf("a") != nil || ended.Rules.LastSeriesOf("a") == nil {
		t.Errorf("the rule was removed: got %+v, %v", ended, err)
	}
	wantRules(t, "after a removal", s, ended)
	set = setWindow(t, s, before.Window+time.Hour)
	if diff := cmp.Diff(ended.Rules, set.Rules, sameTimes); diff != "" {
		t.Errorf("a change of the window changed the rules (-want +got):\n%s", diff)
	}
}

func wantRules(t testing.TB, what string, s store.Store, want store.Settings) {
	t.Helper()
	got := check(t, s).Settings
	if diff := cmp.Diff(want.Rules, got.Rules, sameTimes); diff != "" || got.Version != want.Version {
		t.Errorf("%s: version %d, want %d; rules (-want +got):\n%s", what, got.Version, want.Version, diff)
	}
}
