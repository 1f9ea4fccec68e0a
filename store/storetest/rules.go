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

func wantRules(t testing.TB, what string, s store.Store, want store.Settings) {
	t.Helper()
	got := check(t, s).Settings
	if diff := cmp.Diff(want.Rules, got.Rules, sameTimes); diff != "" || got.Version != want.Version {
		t.Errorf("%s: version %d, want %d; rules (-want +got):\n%s", what, got.Version, want.Version, diff)
	}
}
