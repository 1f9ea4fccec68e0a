package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/units"
)

// A JournalRule says that the increments of the counters of a pattern are kept one by one, as
// evidence.
type JournalRule struct {
	// Pattern is the name of a counter, or a prefix of names followed by *.
	Pattern string
	// Keep is how long records stay that are written under the rule. A record keeps the
	// promise of the rule under which it was written.
	Keep time.Duration
	// Paged writes a row for each entry, so that pages of one counter cost what they show.
	Paged bool
	// PagedSince is the moment from which every entry that was written under the rule has a row; zero
	// if all have one, or without Paged.
	PagedSince time.Time
	// Version is that of the settings since which the rule has its form. Where the store refuses
	// commits made with older rules, it is the oldest version of a commit.
	Version int64
	// Since is the moment, by the store's clock, from which the journal of the counters is complete.
	Since time.Time
	// Ended is when the rule was removed; zero for a rule in force.
	Ended time.Time
}

// The bounds of JournalRule.Keep.
const (
	MinKeepJournal = 24 * time.Hour
	MaxKeepJournal = 3660 * 24 * time.Hour
)

// A JournalChange is the part of a RuleChange that is for the journal.
type JournalChange struct {
	Keep  time.Duration
	Paged bool
}

const journalForm = "DURATION or DURATION,paged, such as 400d"

// ParseJournalKeep reads 400d or 400d,paged. The error is a *countmill.FieldError.
func ParseJournalKeep(text string) (c JournalChange, err error) {
	long, option, optional := strings.Cut(text, ",")
	c.Paged = optional
	c.Keep, err = units.ParseDuration(long)
	if err != nil || optional && option != "paged" {
		return JournalChange{}, &countmill.FieldError{Field: "keep", Problem: "is not how long a journal stays", Limit: journalForm}
	}
	return c, c.check()
}

// String is the change as ParseJournalKeep reads it.
func (c JournalChange) String() string {
	if c.Paged {
		return inDays(c.Keep) + ",paged"
	}
	return inDays(c.Keep)
}

func (c JournalChange) check() error {
	if c.Keep < MinKeepJournal || c.Keep > MaxKeepJournal || c.Keep%time.Minute != 0 {
		return &countmill.FieldError{Field: "keep", Problem: "is " + inDays(c.Keep), Limit: "1d to 3660d, in whole minutes"}
	}
	return nil
}

// Change is the change that makes the rule.
func (r *JournalRule) Change() JournalChange { return JournalChange{r.Keep, r.Paged} }

// Matches reports whether the rule's pattern has the counter.
func (r *JournalRule) Matches(counter string) bool { return patternMatches(r.Pattern, counter) }

// JournalOf returns the rule in force under which increments of the counter are kept, or nil. Groups
// have none: the increments of their counters are the evidence.
func (r *Rules) JournalOf(counter string) *JournalRule {
	if r == nil || len(r.Journal) == 0 || countmill.IsGroup(counter) {
		return nil
	}
	for i := range r.Journal {
		if rule := &r.Journal[i]; rule.Ended.IsZero() && rule.Matches(counter) {
			return rule
		}
	}
	return nil
}

// PagedFrom returns the moment from which every entry of the counter has a row; zero if all have one.
// It reports false if new entries have none.
func (r *Rules) PagedFrom(counter string) (from time.Time, ok bool) {
	rule := r.JournalOf(counter)
	if rule == nil || !rule.Paged {
		return from, false
	}
	from = rule.PagedSince
	for i := range r.Journal {
		other := &r.Journal[i]
		if other == rule || !other.Matches(counter) {
			continue
		}
		// Entries may have been written under the other rule before this one, or until it ended.
		if from = later(from, rule.Since); !other.Ended.IsZero() {
			from = later(from, other.Ended.Add(RulesSettle))
		}
	}
	return from, true
}

// changeJournal is ChangeRules for a rule of the journal.
func (s Settings) changeJournal(c RuleChange, now time.Time, settle time.Duration) (Settings, error) {
	if err := CheckPattern(c.Pattern); err != nil {
		return s, err
	}
	if strings.HasPrefix(c.Pattern, countmill.GroupMark) {
		return s, &countmill.FieldError{Field: "pattern", Problem: "names groups", Limit: "counters that can be incremented"}
	}
	rules := s.Rules.journalWithout(now)
	at := slices.IndexFunc(rules, func(r JournalRule) bool { return r.Pattern == c.Pattern })
	found := at >= 0 && rules[at].Ended.IsZero()
	switch {
	case c.Remove && at < 0:
		return s, fmt.Errorf("%w: no rule keeps a journal of %q", ErrNoRule, c.Pattern)
	case c.Remove && !found:
		return s, nil
	case c.Remove:
		rules[at].Ended = now
		return s.withJournal(rules, now.Add(settle), true), nil
	}
	if err := c.Journal.check(); err != nil {
		return s, err
	}
	if found && rules[at].Change() == *c.Journal {
		return s, nil
	}
	rule := JournalRule{Pattern: c.Pattern, Keep: c.Journal.Keep, Paged: c.Journal.Paged, Version: s.Version + 1, Since: now.Add(settle)}
	if rule.Paged && at >= 0 { // there may be entries without rows
		rule.PagedSince = rule.Since
	}
	less := false
	switch {
	case found: // it goes on without a gap
		less = rule.Keep < rules[at].Keep
		rule.Since = rules[at].Since
		if rule.Paged && rules[at].Paged {
			rule.PagedSince = rules[at].PagedSince
		}
		rules[at] = rule
	case at >= 0:
		rules[at] = rule
	case len(rules) == MaxRules:
		return s, &countmill.FieldError{Field: "pattern", Problem: "is one rule too many", Limit: fmt.Sprintf("%d rules, removed ones included while their records stay", MaxRules)}
	default:
		rules = append(rules, rule)
	}
	return s.withJournal(rules, now.Add(settle), less), nil
}

// journalWithout copies the rules, and leaves out rules that ended so long ago that their records are gone.
func (r *Rules) journalWithout(now time.Time) (rules []JournalRule) {
	if r == nil {
		return nil
	}
	for _, rule := range r.Journal {
		if rule.Ended.IsZero() || rule.Ended.Add(rule.Keep+RulesSettle).After(now) {
			rules = append(rules, rule)
		}
	}
	return rules
}

// withJournal returns the next settings. All records are by the rules from since on. less says that a record may go
// earlier than before, or is not written any more.
func (s Settings) withJournal(rules []JournalRule, since time.Time, less bool) Settings {
	slices.SortFunc(rules, func(a, b JournalRule) int { return comparePatterns(a.Pattern, b.Pattern) })
	version := s.Version + 1
	return s.with(func(next *Rules) {
		if next.Journal, next.JournalSince = rules, since; less {
			next.JournalFrom = version
		}
	})
}
