package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill"
)

// Rules say which counters keep more than a total. The settings of the database hold them, because
// processes with different rules would lose parts of a series. A Rules is never changed: a change
// makes a new one. A nil Rules has no rules. Stores keep its JSON, and a build that does not know a kind of rules refuses only
// databases that have rules of it.
type Rules struct {
	// Series is in the order in which rules are tried: the first that matches a counter wins.
	// Names come before prefixes, and longer prefixes before shorter ones.
	Series []Rule `json:"series,omitempty"`
	// Indexes are in the order of their names.
	Indexes []Index `json:"indexes,omitempty"`
	// Journal is in the order of Series.
	Journal []Rule `json:"journal,omitempty"`
	// JournalFrom is the version of the settings with which a rule for the journal was last removed, or
	// kept records for less. An opening balance (package recount) of older settings proves nothing: records
	// after it may be missing.
	JournalFrom int64 `json:"journal_from,omitempty"`
	// JournalSince is the moment, by the store's clock, from which all records are written by the present rules for the
	// journal.
	JournalSince time.Time `json:"journal_since,omitzero"`
}

// A RuleKind is a kind of rule: for series, or for the journal.
type RuleKind int

// The kinds of rules.
const (
	KindSeries  RuleKind = iota // sums over time
	KindJournal                 // the increments one by one, as evidence
)

// String is series or journal.
func (k RuleKind) String() string { return [...]string{"series", "journal"}[k] }

// A Rule says that the counters of a pattern keep a series or a journal.
type Rule struct {
	// Pattern is the name of a counter, or a prefix of names followed by *.
	Pattern string `json:"pattern"`
	// Keep is how long sums or entries stay. An entry keeps the promise of the rule under which it was
	// written.
	Keep Retention `json:"keep"`
	// Since is the first minute of a complete series, or the moment by the store's clock from which the
	// journal is complete. Increments of earlier minutes are in the series too if they are folded under
	// the rule.
	Since time.Time `json:"since"`
	// Ended is when the rule was removed; zero for a rule in force. A rule that ended gets no more
	// increments, and its series or journal stays for as long as it promised.
	Ended time.Time `json:"ended,omitzero"`

	// Filled is a period before Since in which the series is complete too, because somebody said so of
	// an import; zero for none.
	Filled Period `json:"filled,omitzero"`

	// PagedSince is the moment from which every entry that was written under the rule has a row; zero
	// if all have one, or without Keep.Paged.
	PagedSince time.Time `json:"paged_since,omitzero"`
	// Version is that of the settings since which the rule for the journal has its form. Where the store
	// refuses commits made with older rules, it is the oldest version of a commit.
	Version int64 `json:"version,omitempty"`
}

// A Period is from From on and before To.
type Period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Has reports whether the whole time from one moment to another is in the period.
func (p Period) Has(from, to time.Time) bool { return !from.Before(p.From) && !to.After(p.To) }

// after is the rest of the period after a moment.
func (p Period) after(at time.Time) Period {
	if p.From = later(p.From, at); !p.From.Before(p.To) {
		return Period{}
	}
	return p
}

// Begin is the first moment from which a series of the rule is complete without a gap.
func (r *Rule) Begin() time.Time {
	if r.Filled.To.Before(r.Since) || r.Filled.From.After(r.Since) {
		return r.Since
	}
	return r.Filled.From
}

// The bounds of rules.
const (
	// MaxRules is the most rules of one kind, removed ones included while their data stay.
	MaxRules = 100

	// MaxKeepMinutes bounds Retention.Minutes.
	MaxKeepMinutes = 7 * 24 * time.Hour

	// MinKeep and MaxKeep bound Retention.Quarters and Retention.Entries.
	MinKeep = 24 * time.Hour
	MaxKeep = 3660 * 24 * time.Hour
)

// ErrNoRule is the answer to the removal of a rule that does not exist. Nothing was changed.
var ErrNoRule = errors.New("no such rule")

// A RuleChange adds or removes one rule, or is a step of an index.
type RuleChange struct {
	Kind    RuleKind
	Pattern string
	Keep    Retention // of an added rule
	Remove  bool
	// Filled, if it is not zero, is the only thing that changes of the rule for series.
	Filled Period
	// Index is nil for rules.
	Index *IndexChange
}

// of returns the rules of a kind.
func (r *Rules) of(kind RuleKind) []Rule {
	switch {
	case r == nil:
		return nil
	case kind == KindJournal:
		return r.Journal
	}
	return r.Series
}

// Parse makes rules that were stored usable.
func (r *Rules) Parse() error {
	for i, x := range r.indexes() {
		if err := r.Indexes[i].Parse(); err != nil {
			return fmt.Errorf("the index %q: %w", x.Name, err)
		}
	}
	for _, kind := range []RuleKind{KindSeries, KindJournal} {
		for _, rule := range r.of(kind) {
			if err := rule.Keep.check(kind); err != nil {
				return fmt.Errorf("the rule for the %s of %q: %w", kind, rule.Pattern, err)
			}
		}
	}
	return nil
}

// SuggestRule is a rule for series of the counters like this one, as a shell takes it: those with the same text up to
// the first colon.
func SuggestRule(counter string) string {
	pattern := counter
	if text, _, found := strings.Cut(counter, ":"); found {
		pattern = text + ":*"
	}
	return "'" + strings.ReplaceAll(pattern, "'", `'\''`) + "=1m:6h,15m:400d'"
}

// CheckPattern reports whether pattern can name the counters of a rule: a name, or a prefix followed
// by *. The error is a *countmill.FieldError.
func CheckPattern(pattern string) error {
	const limit = "a counter's name, or a prefix of at most 500 bytes of UTF-8 followed by *"
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	switch {
	case isPrefix && len(prefix) <= countmill.MaxCounterName && utf8.ValidString(prefix):
		return nil
	case isPrefix || countmill.CheckName(pattern) != nil:
		return &countmill.FieldError{Field: "pattern", Problem: "names no counters", Limit: limit}
	}
	return nil
}

// Matches reports whether the rule's pattern has the counter.
func (r *Rule) Matches(counter string) bool {
	if prefix, ok := strings.CutSuffix(r.Pattern, "*"); ok {
		return strings.HasPrefix(counter, prefix)
	}
	return counter == r.Pattern
}

// SeriesOf returns the rule in force under which the counter keeps a series, or nil.
func (r *Rules) SeriesOf(counter string) *Rule { return inForce(r.of(KindSeries), counter) }

// JournalOf returns the rule in force under which increments of the counter are kept, or nil. Groups
// have none: the increments of their counters are the evidence.
func (r *Rules) JournalOf(counter string) *Rule {
	if countmill.IsGroup(counter) {
		return nil
	}
	return inForce(r.of(KindJournal), counter)
}

func inForce(rules []Rule, counter string) *Rule {
	for i := range rules {
		if rule := &rules[i]; rule.Ended.IsZero() && rule.Matches(counter) {
			return rule
		}
	}
	return nil
}

// ParseRule reads PATTERN=KEEP. The error is a *countmill.FieldError.
func ParseRule(kind RuleKind, text string) (pattern string, keep Retention, err error) {
	at := strings.LastIndex(text, "=")
	if at < 0 {
		return "", keep, &countmill.FieldError{Field: kind.String(), Problem: "has no =", Limit: "PATTERN=KEEP, KEEP is " + kind.Form()}
	}
	pattern = text[:at]
	if err := CheckPattern(pattern); err != nil {
		return "", keep, err
	}
	keep, err = ParseRetention(kind, text[at+1:])
	return pattern, keep, err
}

// PagedFrom returns the moment from which every entry of the counter has a row; zero if all have one.
// It reports false if new entries have none.
func (r *Rules) PagedFrom(counter string) (from time.Time, ok bool) {
	rule := r.JournalOf(counter)
	if rule == nil || !rule.Keep.Paged {
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

// LastSeriesOf is SeriesOf. If no rule is in force, it returns the rule for the counter that ended
// last.
func (r *Rules) LastSeriesOf(counter string) *Rule {
	last := r.SeriesOf(counter)
	if last != nil {
		return last
	}
	for i := range r.of(KindSeries) {
		if rule := &r.Series[i]; rule.Matches(counter) && (last == nil || rule.Ended.After(last.Ended)) {
			last = rule
		}
	}
	return last
}

// KeepOf is how long the counter's series stays: the longest of all rules that match, because each
// rule promised that for its own increments. It is zero if there is none.
func (r *Rules) KeepOf(counter string) (keep Retention) {
	for _, rule := range r.of(KindSeries) {
		if rule.Matches(counter) {
			keep.Minutes, keep.Quarters = max(keep.Minutes, rule.Keep.Minutes), max(keep.Quarters, rule.Keep.Quarters)
		}
	}
	return keep
}

// Oldest is the version of the oldest settings by which a commit may be made (Commit.Rules). It
// falls when the index or the rule that demanded it is gone.
func (r *Rules) Oldest() (version int64) {
	for _, x := range r.indexes() {
		version = max(version, x.Version)
	}
	for _, rule := range r.of(KindJournal) {
		version = max(version, rule.Version)
	}
	return version
}

// ChangeRules returns the settings after a change of the rules at the store's time now. A change
// that is in effect already returns s. The error matches ErrNoRule, or is a *countmill.FieldError.
//
// A rule holds since the first minute that no process can fold any more without the rule: a commit by
// older rules begins at most MaxTransaction before they settle, and an increment counts at most
// SeriesAhead before its time.
//
// settle is how long after the change a commit may still be applied that was made with older rules:
// RulesSettle, or 0 if the store refuses such a commit (ErrOutdated).
func (s Settings) ChangeRules(c RuleChange, now time.Time, settle time.Duration) (Settings, error) {
	switch {
	case c.Index != nil:
		return s.changeIndexes(c.Index, now, settle)
	case c.Filled != Period{}:
		return s.fill(c, now)
	}
	if err := CheckPattern(c.Pattern); err != nil {
		return s, err
	}
	if c.Kind == KindJournal && strings.HasPrefix(c.Pattern, countmill.GroupMark) {
		return s, &countmill.FieldError{Field: "pattern", Problem: "names groups", Limit: "counters that can be incremented"}
	}
	rules := s.Rules.remembered(c.Kind, now)
	at := slices.IndexFunc(rules, func(r Rule) bool { return r.Pattern == c.Pattern })
	found := at >= 0 && rules[at].Ended.IsZero()
	switch {
	case c.Remove && at < 0:
		return s, fmt.Errorf("%w: no rule keeps a %s of %q", ErrNoRule, c.Kind, c.Pattern)
	case c.Remove && !found:
		return s, nil
	case c.Remove:
		rules[at].Ended = now
		return s.withRules(c.Kind, rules, now.Add(settle), true), nil
	}
	if err := c.Keep.check(c.Kind); err != nil {
		return s, err
	}
	if found && rules[at].Keep == c.Keep {
		return s, nil
	}
	rule := Rule{Pattern: c.Pattern, Keep: c.Keep, Since: since(now, settle)}
	if c.Kind == KindJournal {
		if rule.Version, rule.Since = s.Version+1, now.Add(settle); c.Keep.Paged && at >= 0 { // there may be entries without rows
			rule.PagedSince = rule.Since
		}
	}
	less := false
	switch {
	case found: // it goes on without a gap
		less = c.Keep.Entries < rules[at].Keep.Entries
		rules[at] = rules[at].changed(rule, now)
	case at >= 0:
		rules[at] = rule
	case len(rules) == MaxRules:
		return s, &countmill.FieldError{Field: "pattern", Problem: "is one rule too many", Limit: fmt.Sprintf("%d rules, removed ones included while what they kept stays", MaxRules)}
	default:
		rules = append(rules, rule)
	}
	return s.withRules(c.Kind, rules, now.Add(settle), less), nil
}

// changed returns r with what differs in next, which was made at now.
func (r Rule) changed(next Rule, now time.Time) Rule {
	next.Since, next.Filled = r.Since, r.Filled
	if next.Keep.Quarters > r.Keep.Quarters { // older sums are gone
		oldest := now.Add(-r.Keep.Quarters).Truncate(time.Minute)
		next.Since, next.Filled = later(r.Since, oldest), r.Filled.after(oldest)
	}
	if next.Keep.Paged && r.Keep.Paged {
		next.PagedSince = r.PagedSince
	}
	return next
}

// fill is ChangeRules for the period that an import made complete. It takes the place of an earlier one.
func (s Settings) fill(c RuleChange, now time.Time) (Settings, error) {
	rules := s.Rules.remembered(KindSeries, now)
	at := slices.IndexFunc(rules, func(r Rule) bool { return r.Pattern == c.Pattern && r.Ended.IsZero() })
	switch {
	case at < 0:
		return s, fmt.Errorf("%w: no rule keeps a series of %q", ErrNoRule, c.Pattern)
	case !c.Filled.From.Before(c.Filled.To):
		return s, &countmill.FieldError{Field: "to", Problem: "is not after from", Limit: "later than from"}
	case c.Filled.To.After(now):
		return s, &countmill.FieldError{Field: "to", Problem: "is in the future", Limit: "at most now"}
	case c.Filled.From.Equal(rules[at].Filled.From) && c.Filled.To.Equal(rules[at].Filled.To):
		return s, nil
	}
	rules[at].Filled = c.Filled
	return s.withRules(KindSeries, rules, now, false), nil
}

// remembered copies the rules of a kind, and leaves out rules that ended so long ago that nothing they kept is left.
func (r *Rules) remembered(kind RuleKind, now time.Time) (rules []Rule) {
	for _, rule := range r.of(kind) {
		stays := rule.Keep.Quarters + SeriesSlack
		if kind == KindJournal {
			stays = rule.Keep.Entries + RulesSettle
		}
		if rule.Ended.IsZero() || rule.Ended.Add(stays).After(now) {
			rules = append(rules, rule)
		}
	}
	return rules
}

// withRules returns the next settings. All entries of the journal are by the rules from since on. less says
// that an entry may go earlier than before, or is not written any more.
func (s Settings) withRules(kind RuleKind, rules []Rule, since time.Time, less bool) Settings {
	slices.SortFunc(rules, func(a, b Rule) int { return comparePatterns(a.Pattern, b.Pattern) })
	version := s.Version + 1
	return s.with(func(next *Rules) {
		if kind == KindSeries {
			next.Series = rules
			return
		}
		if next.Journal, next.JournalSince = rules, since; less {
			next.JournalFrom = version
		}
	})
}

// with returns the next settings: change sets one kind of rules, and the others stay.
func (s Settings) with(change func(next *Rules)) Settings {
	var next Rules
	if s.Rules != nil {
		next = *s.Rules
	}
	change(&next)
	s.Version, s.Rules = s.Version+1, nil
	if len(next.Series)+len(next.Indexes)+len(next.Journal) > 0 {
		s.Rules = &next
	}
	return s
}

// comparePatterns puts names before prefixes, and longer prefixes before shorter ones.
func comparePatterns(a, b string) int {
	isPrefix := func(pattern string) int {
		if strings.HasSuffix(pattern, "*") {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(isPrefix(a), isPrefix(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
}

// since is the first whole minute at which every process folds by a rule that was set at now. A store that
// refuses commits by older rules (settle 0) still takes commits that lack only a series. From now until its change is in
// effect it gives out no settings.
func since(now time.Time, settle time.Duration) time.Time {
	begin := max(settle-MaxTransaction, SettingsMaxAge)
	return now.Add(begin + SeriesAhead + time.Minute - time.Nanosecond).Truncate(time.Minute)
}
