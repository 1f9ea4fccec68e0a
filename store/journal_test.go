package store

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
)

func TestJournalPlacesAreInOrder(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 12, 0, 0, 1000, time.UTC)
	places := []JournalPlace{
		{}, JournalAt(at.Add(-time.Microsecond)), {NewJournalKey(at.Add(-time.Microsecond), math.MaxUint64), math.MaxUint32}, JournalAt(at),
		{NewJournalKey(at, 0), 1}, {NewJournalKey(at, 1), 0}, {NewJournalKey(at, 1), 300}, {NewJournalKey(at, 256), 2}, JournalAt(at.Add(time.Hour)),
	}
	var texts []string
	for i, p := range places {
		texts = append(texts, p.String())
		if got, err := ParseJournalPlace("after", p.String()); err != nil || got != p {
			t.Errorf("%s is read as %s, %v", p, got, err)
		}
		for k, q := range places {
			if got := p.Compare(q); (got < 0) != (i < k) || (got == 0) != (i == k) {
				t.Errorf("Compare(%s, %s) is %d", p, q, got)
			}
		}
		if next := p.Next(); next.Compare(p) <= 0 || i+1 < len(places) && next.Compare(places[i+1]) > 0 {
			t.Errorf("the place after %s is %s", p, next)
		}
	}
	if !slices.IsSorted(texts) {
		t.Errorf("the strings of places are not in order: %q", texts)
	}
	if got := NewJournalKey(at, 7).Time(); !got.Equal(at) {
		t.Errorf("a key of %s has the time %s", at, got)
	}
	for _, text := range []string{"", "00", strings.Repeat("0", 39) + "g", strings.Repeat("A", 40), strings.Repeat("0", 42)} {
		if _, err := ParseJournalPlace("before", text); err == nil || !strings.Contains(err.Error(), "before") {
			t.Errorf("%q: got error %v, want one that names the field", text, err)
		}
	}
}

func TestParseRetentionOfJournals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Retention{
		"400d": {Entries: 400 * days}, "30d,paged": {Entries: 30 * days, Paged: true}, "24h": {Entries: days},
		"": {}, "23h": {}, "3661d": {}, "400d,": {}, "400d,pages": {}, "paged": {}, "1d,paged,paged": {}, "paged,1d": {}, "1m:6h,15m:400d": {}, "15m:400d": {}, "400d,30d": {}, "1d30s": {},
	} {
		got, err := ParseRetention(KindJournal, text)
		if ok := want.Entries > 0; (err == nil) != ok || ok && got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
		field, isField := errors.AsType[*countmill.FieldError](err)
		if err != nil && (!isField || field.Field != "keep" || field.Limit == "") {
			t.Errorf("%q: got error %v, want one that names keep and its limit", text, err)
		}
		if again, err := ParseRetention(KindJournal, got.String()); want.Entries > 0 && (err != nil || again != got) {
			t.Errorf("%q is written as %q and read as %+v, %v", text, got, again, err)
		}
	}
}

func journalRule(pattern, keep string) RuleChange {
	c, err := ParseRetention(KindJournal, keep)
	if err != nil {
		panic(err)
	}
	return RuleChange{Kind: KindJournal, Pattern: pattern, Keep: c}
}

// Rules for series, for the journal and indexes do not change one another.
func TestRulesOfTheJournal(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	s := change(t, NewSettings(8*days, now), now, RuleChange{Pattern: "a*", Keep: Retention{Quarters: 30 * days}})
	index, err := ParseIndex("sites", "page:{site}:*", "site:{site}")
	if err != nil {
		t.Fatal(err)
	}
	s = change(t, s, now, journalRule("a*", "400d"), journalRule("ab", "30d,paged"), RuleChange{Index: &IndexChange{Step: CreateIndex, Index: index}},
		RuleChange{Pattern: "c", Keep: Retention{Quarters: 30 * days}})
	if s.Version != 6 || len(s.Rules.Series) != 2 || len(s.Rules.Journal) != 2 || len(s.Rules.Indexes) != 1 || s.Rules.Oldest() != 5 {
		t.Fatalf("after five changes: %+v", s.Rules)
	}
	for counter, keep := range map[string]string{"ab": "30d,paged", "abc": "400d", "a": "400d", "b": "", countmill.GroupMark + "a": ""} {
		rule := s.Rules.JournalOf(counter)
		if got := ""; rule != nil {
			if got = rule.Keep.String(); got != keep {
				t.Errorf("the journal of %q is kept for %s, want %s", counter, got, keep)
			}
		} else if keep != "" {
			t.Errorf("%q has no journal", counter)
		}
	}
	if same := change(t, s, now.Add(time.Hour), journalRule("ab", "30d,paged")); same.Version != s.Version {
		t.Errorf("the same rule again is version %d", same.Version)
	}
	ended := change(t, s, now.Add(time.Hour), RuleChange{Kind: KindJournal, Pattern: "ab", Remove: true})
	if rule := ended.Rules.JournalOf("ab"); rule == nil || rule.Pattern != "a*" || len(ended.Rules.Journal) != 2 {
		t.Errorf("after a removal: %+v", ended.Rules.Journal)
	}
	later := change(t, ended, now.Add(31*days), journalRule("x", "30d"))
	if len(later.Rules.Journal) != 2 || later.Rules.Journal[0].Pattern != "x" {
		t.Errorf("a month after a removal: %+v", later.Rules.Journal)
	}
	for _, tt := range []struct {
		change RuleChange
		want   error
	}{
		{journalRule("\x00", "30d"), countmill.ErrInvalid},
		{journalRule(countmill.GroupMark+"a*", "30d"), countmill.ErrInvalid},
		{RuleChange{Kind: KindJournal, Pattern: "a"}, countmill.ErrInvalid},
		{RuleChange{Kind: KindJournal, Pattern: "zz", Remove: true}, ErrNoRule},
	} {
		if _, err := s.ChangeRules(tt.change, now, 0); !errors.Is(err, tt.want) {
			t.Errorf("%+v: got %v, want %v", tt.change, err, tt.want)
		}
	}
}

// A change of a rule leaves no gap. Its pages are complete from the change on if they were not before.
func TestChangedRulesOfTheJournalGoOn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	set := func(s Settings, at time.Time, keep string) Settings {
		t.Helper()
		s, err := s.ChangeRules(journalRule("a", keep), at, RulesSettle)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := set(NewSettings(8*days, now), now, "30d")
	first := now.Add(RulesSettle)
	if r := s.Rules.JournalOf("a"); !r.Since.Equal(first) || !r.PagedSince.IsZero() {
		t.Errorf("a new rule: %+v", r)
	}
	s = set(s, now.Add(days), "30d,paged")
	second := now.Add(days + RulesSettle)
	if r := s.Rules.JournalOf("a"); !r.Since.Equal(first) || !r.PagedSince.Equal(second) || r.Version != s.Version {
		t.Errorf("with pages: %+v", r)
	}
	s = set(s, now.Add(2*days), "60d,paged")
	if r := s.Rules.JournalOf("a"); !r.Since.Equal(first) || !r.PagedSince.Equal(second) || r.Keep.Entries != 60*days {
		t.Errorf("kept for longer: %+v", r)
	}
}

// Rows are complete from the last moment at which an entry could be written without one.
func TestPagedFrom(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	type step struct {
		pattern, keep string // an empty keep removes
	}
	for name, tt := range map[string]struct {
		steps []step
		want  time.Duration // after begin; negative for all
		ok    bool
	}{
		"no rule":                     {nil, 0, false},
		"without pages":               {[]step{{"a", "30d"}}, 0, false},
		"with pages from the first":   {[]step{{"a", "30d,paged"}}, -1, true},
		"for others":                  {[]step{{"b", "30d"}, {"a", "30d,paged"}}, -1, true},
		"with pages later":            {[]step{{"a", "30d"}, {"a", "30d,paged"}}, time.Hour + RulesSettle, true},
		"after a removal":             {[]step{{"a", "30d"}, {"a", ""}, {"a", "30d,paged"}}, 2*time.Hour + RulesSettle, true},
		"beside a shorter one":        {[]step{{"*", "30d"}, {"a", "30d,paged"}}, time.Hour + RulesSettle, true},
		"after a longer one":          {[]step{{"*", "30d,paged"}, {"a", "30d"}, {"a", ""}}, 2*time.Hour + RulesSettle, true},
		"until a longer one is there": {[]step{{"*", "30d,paged"}, {"a", "30d"}}, 0, false},
	} {
		s := NewSettings(8*days, begin)
		for i, st := range tt.steps {
			c := RuleChange{Kind: KindJournal, Pattern: st.pattern, Remove: true}
			if st.keep != "" {
				c = journalRule(st.pattern, st.keep)
			}
			var err error
			if s, err = s.ChangeRules(c, begin.Add(time.Duration(i)*time.Hour), RulesSettle); err != nil {
				t.Fatal(err)
			}
		}
		from, ok := s.Rules.PagedFrom("a")
		if want := begin.Add(tt.want); ok != tt.ok || ok && !(tt.want < 0 && from.IsZero()) && !from.Equal(want) {
			t.Errorf("%s: rows from %s, %t, want %s, %t", name, from, ok, want, tt.ok)
		}
	}
}

// The settings say since when no record has gone early, also after the rule is gone.
func TestJournalFrom(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	s := NewSettings(8*days, now)
	for i, step := range []struct {
		change RuleChange
		moves  bool
	}{
		{journalRule("a*", "30d"), false},
		{journalRule("b", "30d"), false},
		{journalRule("a*", "60d,paged"), false},
		{journalRule("a*", "30d"), true},
		{RuleChange{Kind: KindJournal, Pattern: "b", Remove: true}, true},
		{RuleChange{Kind: KindJournal, Pattern: "b", Remove: true}, false},
		{journalRule("b", "30d"), false},
	} {
		before := s.Rules
		s = change(t, s, now, step.change)
		want := s.Version
		if !step.moves {
			if want = 0; before != nil {
				want = before.JournalFrom
			}
		}
		if s.Rules.JournalFrom != want {
			t.Errorf("step %d: from version %d, want %d", i, s.Rules.JournalFrom, want)
		}
	}
}

// A series that is kept for longer is complete from where the shorter one began.
func TestLongerSeries(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	rule := func(keep time.Duration) RuleChange {
		return RuleChange{Pattern: "a", Keep: Retention{Quarters: keep}}
	}
	s := change(t, NewSettings(8*days, now), now, rule(30*days))
	first := s.Rules.Series[0].Since
	s = change(t, s, now.Add(days), rule(60*days))
	if got := s.Rules.Series[0].Since; !got.Equal(first) {
		t.Errorf("longer after a day: complete from %s, want %s", got, first)
	}
	s = change(t, s, now.Add(10*days), rule(2*days))
	s = change(t, s, now.Add(10*days), rule(60*days))
	if got, want := s.Rules.Series[0].Since, now.Add(8*days); !got.Equal(want) {
		t.Errorf("shorter and longer again: complete from %s, want %s", got, want)
	}
}
