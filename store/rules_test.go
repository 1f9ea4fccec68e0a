package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

const days = 24 * time.Hour

func TestParseRetention(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want Retention
		ok   bool
	}{
		{"1m:6h,15m:400d", Retention{Minutes: 6 * time.Hour, Quarters: 400 * days}, true},
		{"15m:400d,1m:6h", Retention{Minutes: 6 * time.Hour, Quarters: 400 * days}, true},
		{"15m:30d", Retention{Quarters: 30 * days}, true},
		{"1m:7d,15m:3660d", Retention{Minutes: 7 * days, Quarters: 3660 * days}, true},
		{"1m:6h", Retention{}, false},
		{"", Retention{}, false},
		{"15m:23h", Retention{}, false},
		{"15m:3661d", Retention{}, false},
		{"1m:8d,15m:30d", Retention{}, false},
		{"1m:2d,15m:1d", Retention{}, false},
		{"1m:-1h,15m:30d", Retention{}, false},
		{"1m:90s,15m:30d", Retention{}, false},
		{"15m:30d,15m:31d", Retention{}, false},
		{"5m:6h,15m:30d", Retention{}, false},
	} {
		got, err := ParseRetention(KindSeries, tt.text)
		if (err == nil) != tt.ok || tt.ok && got != tt.want {
			t.Errorf("%q: got %+v, %v, want %+v, ok %t", tt.text, got, err, tt.want, tt.ok)
		}
		field, isField := errors.AsType[*countmill.FieldError](err)
		if err != nil && (!isField || field.Field != "keep" || field.Limit == "") {
			t.Errorf("%q: got error %v, want one that names keep and its limit", tt.text, err)
		}
		if again, err := ParseRetention(KindSeries, got.String()); tt.ok && (err != nil || again != got) {
			t.Errorf("%q is written as %q and read as %+v, %v", tt.text, got, again, err)
		}
	}
}

func change(t *testing.T, s Settings, now time.Time, changes ...RuleChange) Settings {
	t.Helper()
	for _, c := range changes {
		var err error
		if s, err = s.ChangeRules(c, now, 0); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	return s
}

var (
	month = Retention{Minutes: 6 * time.Hour, Quarters: 30 * days}
	year  = Retention{Quarters: 365 * days}
)

// A name wins over prefixes, and a longer prefix over a shorter one, in whatever order the rules came.
func TestTheMostSpecificRuleWins(t *testing.T) {
	t.Parallel()
	for _, patterns := range [][]string{{"*", "page:*", "page:/a", "page:/*"}, {"page:/*", "page:/a", "page:*", "*"}} {
		s := NewSettings(days, start)
		for _, p := range patterns {
			s = change(t, s, start, RuleChange{Pattern: p, Keep: month})
		}
		for counter, want := range map[string]string{
			"page:/a": "page:/a", "page:/ab": "page:/*", "page:x": "page:*", "x": "*", "page:/": "page:/*",
		} {
			if got := s.Rules.SeriesOf(counter); got == nil || got.Pattern != want {
				t.Errorf("%q under %q: got rule %+v, want %q", counter, patterns, got, want)
			}
		}
	}
	if got := change(t, NewSettings(days, start), start, RuleChange{Pattern: "a", Keep: month}).Rules.SeriesOf("ab"); got != nil {
		t.Errorf("a name has the rule %+v of another name", got)
	}
}

func TestARuleHoldsWhenAllProcessesGoByIt(t *testing.T) {
	t.Parallel()
	now := start.Add(30 * time.Second)
	s := change(t, NewSettings(days, start), now, RuleChange{Pattern: "a*", Keep: month})
	rule := s.Rules.SeriesOf("a")
	if s.Version != 2 || rule.Since != rule.Since.Truncate(time.Minute) || rule.Since.Before(now.Add(SettingsMaxAge+SeriesAhead)) {
		t.Errorf("version %d, since %s, want 2 and a minute at or after %s", s.Version, rule.Since, now.Add(SettingsMaxAge+SeriesAhead))
	}
	if again := change(t, s, now.Add(time.Hour), RuleChange{Pattern: "a*", Keep: month}); again != s {
		t.Errorf("the same rule again: got %+v, want %+v", again, s)
	}
	longer := change(t, s, now.Add(time.Hour), RuleChange{Pattern: "a*", Keep: year})
	if got := longer.Rules.SeriesOf("a"); longer.Version != 3 || got.Keep != year || got.Since != rule.Since {
		t.Errorf("another retention: got version %d and %+v, want 3 and since %s", longer.Version, got, rule.Since)
	}
	if rule.Keep != month {
		t.Error("a change of the rules changed rules that others have")
	}
}

// A filled period is the last period stated of a rule in force, as far as its sums are there.
func TestAFilledPeriod(t *testing.T) {
	t.Parallel()
	now := start.Add(100 * days)
	filled := Period{start, now.Add(-time.Hour)}
	s := change(t, NewSettings(days, start), now, RuleChange{Pattern: "a*", Keep: month})
	fill := RuleChange{Pattern: "a*", Filled: filled}
	full := change(t, s, now, fill)
	if got := full.Rules.SeriesOf("a"); got.Filled != filled || full.Version != 3 || got.Keep != month || !got.Begin().Equal(got.Since) {
		t.Errorf("got version %d and %+v", full.Version, got)
	}
	if again := change(t, full, now, fill); again != full {
		t.Errorf("filled twice: got %+v", again)
	}
	fill.Filled.To = now
	if got := change(t, full, now, fill).Rules.SeriesOf("a"); got.Filled.To != now {
		t.Errorf("another period: got %+v", got)
	}
	longer := change(t, full, now, RuleChange{Pattern: "a*", Keep: year}).Rules.SeriesOf("a")
	if want := (Period{now.Add(-month.Quarters), filled.To}); longer.Filled != want {
		t.Errorf("kept for longer: got %+v, want %+v, as older sums are gone", longer.Filled, want)
	}
	if got := change(t, full, filled.To.Add(31*days), RuleChange{Pattern: "a*", Keep: year}).Rules.SeriesOf("a"); got.Filled != (Period{}) {
		t.Errorf("kept for longer when all is gone: got %+v", got.Filled)
	}
	removed := change(t, full, now, RuleChange{Pattern: "a*", Remove: true}, RuleChange{Pattern: "a*", Keep: month})
	if got := removed.Rules.SeriesOf("a"); got.Filled != (Period{}) {
		t.Errorf("a rule that was removed and added again has %+v", got.Filled)
	}
	for _, wrong := range []struct {
		change RuleChange
		want   error
	}{
		{RuleChange{Pattern: "a", Filled: filled}, ErrNoRule},
		{RuleChange{Pattern: "a*", Filled: Period{now, start}}, countmill.ErrInvalid},
		{RuleChange{Pattern: "a*", Filled: Period{start, now.Add(time.Second)}}, countmill.ErrInvalid},
	} {
		if got, err := s.ChangeRules(wrong.change, now, 0); !errors.Is(err, wrong.want) || got != s {
			t.Errorf("%+v: got %+v, %v", wrong.change, got, err)
		}
	}
}

// A removed rule takes no increments. Its series stays as long as it promised.
func TestARemovedRuleKeepsItsPromise(t *testing.T) {
	t.Parallel()
	remove := RuleChange{Pattern: "a*", Remove: true}
	s := change(t, NewSettings(days, start), start, RuleChange{Pattern: "a*", Keep: year}, RuleChange{Pattern: "*", Keep: month})
	ended := start.Add(10 * days)
	s = change(t, s, ended, remove)
	if got := s.Rules.SeriesOf("a"); got == nil || got.Pattern != "*" {
		t.Errorf("after the removal: got rule %+v, want *", got)
	}
	if got := s.Rules.KeepOf("a"); got != (Retention{Minutes: month.Minutes, Quarters: year.Quarters}) {
		t.Errorf("the series of both rules stays for %s", got)
	}
	if again := change(t, s, ended.Add(days), remove); again != s {
		t.Errorf("removed twice: got %+v, want %+v", again, s)
	}
	s = change(t, s, ended, RuleChange{Pattern: "*", Remove: true})
	if got := s.Rules.SeriesOf("a"); got != nil {
		t.Errorf("without rules: got %+v", got)
	}
	if got := s.Rules.LastSeriesOf("a"); got == nil || got.Ended.IsZero() {
		t.Errorf("the last rule of a counter without one: got %+v", got)
	}
	back := change(t, s, ended.Add(days), RuleChange{Pattern: "a*", Keep: month}).Rules.SeriesOf("a")
	if back == nil || !back.Since.After(ended.Add(days)) {
		t.Errorf("a rule that was removed and added again: got %+v, want one that begins anew", back)
	}
	gone := change(t, s, ended.Add(366*days), RuleChange{Pattern: "b", Keep: month})
	if got := gone.Rules.LastSeriesOf("a"); got != nil {
		t.Errorf("a year after their ends: got rule %+v", got)
	}
}

func TestRuleChangesAreRefused(t *testing.T) {
	t.Parallel()
	full := NewSettings(days, start)
	for i := range MaxRules {
		full = change(t, full, start, RuleChange{Pattern: fmt.Sprintf("a%d", i), Keep: month})
	}
	for _, tt := range []struct {
		s    Settings
		c    RuleChange
		want error
	}{
		{full, RuleChange{Pattern: "", Keep: month}, countmill.ErrInvalid},
		{full, RuleChange{Pattern: "a\x00b", Keep: month}, countmill.ErrInvalid},
		{full, RuleChange{Pattern: "\xff*", Keep: month}, countmill.ErrInvalid},
		{full, RuleChange{Pattern: "a0", Keep: Retention{}}, countmill.ErrInvalid},
		{full, RuleChange{Pattern: "b", Keep: month}, countmill.ErrInvalid},
		{full, RuleChange{Pattern: "b", Remove: true}, ErrNoRule},
		{NewSettings(days, start), RuleChange{Pattern: "b", Remove: true}, ErrNoRule},
	} {
		got, err := tt.s.ChangeRules(tt.c, start, 0)
		if !errors.Is(err, tt.want) {
			t.Errorf("%+v: got error %v, want %v", tt.c, err, tt.want)
		}
		if diff := cmp.Diff(tt.s, got); diff != "" {
			t.Errorf("%+v: a refused change changed the settings:\n%s", tt.c, diff)
		}
	}
	if change(t, full, start, RuleChange{Pattern: "a0", Keep: year}).Rules.SeriesOf("a0").Keep != year {
		t.Error("with all rules used, one could not be changed")
	}
}
