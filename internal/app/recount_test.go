package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A darkStore does not answer Check while it is dark.
type darkStore struct {
	*protocoltest.Store
	dark atomic.Bool
}

func (s *darkStore) Check(ctx context.Context) (store.Checked, error) {
	if s.dark.Load() {
		return store.Checked{}, errors.New("no answer")
	}
	return s.Store.Check(ctx)
}

// unbalanced returns the samples of the metric, which has no labels.
func unbalanced(t *testing.T, services []named) (values []float64) {
	t.Helper()
	families, err := newRegistry(collect(services)).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "countmill_journal_rules_without_balance" {
			for _, m := range f.GetMetric() {
				values = append(values, m.GetGauge().GetValue())
			}
		}
	}
	return values
}

// The metric is absent before the first look. A rule that does not hold yet lacks balances until the chores of the next hour, and the
// number stays while the store does not answer.
func TestRulesWithoutBalances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &darkStore{Store: protocoltest.New(protocoltest.Options{})}
		cfg, b := Config{Roles: Aggregator, Logger: slog.New(slog.DiscardHandler)}, &backends{store: s}
		services := sweeps(cfg, b)
		want := func(when string, want ...float64) {
			t.Helper()
			if got := unbalanced(t, services); len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*store.SweepEvery)
		defer cancel()
		runs := startAll(ctx, services)
		want("before the first look")
		time.Sleep(30 * time.Minute)
		want("after half an hour", 0)
		if _, err := s.ChangeRules(ctx, store.RuleChange{Kind: store.KindJournal, Pattern: "a:*", Keep: store.Retention{Entries: 30 * 24 * time.Hour}}); err != nil {
			t.Fatal(err)
		}
		b.balances.tendSoon(ctx, cfg, s)
		want("right after the rule was added", 1)
		s.dark.Store(true)
		time.Sleep(store.SweepEvery + time.Minute)
		want("after an hour without an answer", 1)
		s.dark.Store(false)
		time.Sleep(store.SweepEvery)
		want("an hour later", 0)
		if err := runs.rest(true); err != nil {
			t.Error(err)
		}
	})
}

// The overview has the number once this process has looked: after a change of the rules, for example.
func TestOverviewHasRulesWithoutBalances(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.waitReady(t)
	const name = `"journal_rules_without_balance":`
	if _, text := r.call(t, "GET", "/v1/overview", ""); strings.Contains(text, name) {
		t.Errorf("before the first look: %s", text)
	}
	if status, text := r.call(t, "POST", "/v1/rules/journal", `{"pattern":"billing:*","keep":"30d"}`); status != 200 {
		t.Fatalf("adding a rule: %d %s", status, text)
	}
	if _, text := r.call(t, "GET", "/v1/overview", ""); !strings.Contains(text, name+"0") {
		t.Errorf("after a rule was added: %s, want %s0", text, name)
	}
	if got := r.metric(t, "countmill_journal_rules_without_balance"); got != 0 {
		t.Errorf("the metric is %v, want 0", got)
	}
}
