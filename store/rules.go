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
	"github.com/countmill/countmill/internal/units"
)

// Rules say which counters keep more than a total. The settings of the database hold them, because
// processes with different rules would lose parts of a series. A Rules is never changed: a change
// makes a new one. A nil Rules has no rules.
type Rules struct {
	// Series is in the order in which rules are tried: the first that matches a counter wins.
	// Names come before prefixes, and longer prefixes before shorter ones.
	Series []SeriesRule
	// Indexes are in the order of their names.
	Indexes []Index
	// Journal is in the order of Series.
	Journal []JournalRule
	// JournalFrom is the version of the settings with which a rule for the journal was last removed, or
	// kept records for less. An opening balance (package recount) of older settings proves nothing: records
	// after it may be missing.
	JournalFrom int64
	// JournalSince is the moment, by the store's clock, from which all records are written by the present rules for the
	// journal.
	JournalSince time.Time
}

// A SeriesRule says that the counters of a pattern keep a series: their sums over time.
type SeriesRule struct {
	// Pattern is the name of a counter, or a prefix of names followed by *.
	Pattern string
	// Keep is how long the sums stay.
	Keep Retention
	// Since is the first minute of a complete series. Increments of earlier minutes are in the
	// series too if they are folded under the rule.
	Since time.Time
	// Filled is a period before Since that is complete too, because somebody said so of an import; zero for none.
	Filled Period
	// Ended is when the rule was removed; zero for a rule in force. A rule that ended gets no
	// more increments, and its series stays for as long as it promised.
	Ended time.Time
}

// A Period is from From on and before To.
type Period struct{ From, To time.Time }

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
func (r *SeriesRule) Begin() time.Time {
	if r.Filled.To.Before(r.Since) || r.Filled.From.After(r.Since) {
		return r.Since
	}
	return r.Filled.From
}

// A Retention is how long a series stays, at each of its two resolutions. Sums by the hour, the day
// and longer are made of quarter hours when they are read, in any time zone.
type Retention struct {
	// Minutes is how long sums by the minute stay; 0: they are joined to quarter hours soon.
	Minutes time.Duration
	// Quarters is how long sums by the quarter hour stay.
	Quarters time.Duration
}

// The bounds of rules.
const (
	// MaxRules is the most rules of one kind, removed ones included while their series stay.
	MaxRules = 100

	// MaxKeepMinutes bounds Retention.Minutes.
	MaxKeepMinutes = 7 * 24 * time.Hour

	// MinKeepQuarters and MaxKeepQuarters bound Retention.Quarters.
	MinKeepQuarters = 24 * time.Hour
	MaxKeepQuarters = 3660 * 24 * time.Hour
)

// ErrNoRule is the answer to the removal of a rule that does not exist. Nothing was changed.
var ErrNoRule = errors.New("no such rule")

// A RuleChange adds or removes one rule for series or for the journal, or is a step of an index.
type RuleChange struct {
	Pattern string
	Keep    Retention // of an added rule
	Remove  bool
	// Filled, if it is not zero, is the only thing that changes of the rule for series.
	Filled Period
	// Index is nil for rules.
	Index *IndexChange
	// Journal is nil for a rule for series. If Remove is true its content has no meaning.
	Journal *JournalChange
}

const retentionForm = "1m:DURATION,15m:DURATION, such as 1m:6h,15m:400d"

// ParseRetention reads 1m:6h,15m:400d. Without the first part minutes are not kept. The error is a
// *countmill.FieldError.
func ParseRetention(text string) (r Retention, err error) {
	wrong := &countmill.FieldError{Field: "keep", Problem: "is not a retention", Limit: retentionForm}
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(text, ",") {
		resolution, long, _ := strings.Cut(part, ":")
		d, err := units.ParseDuration(long)
		if err != nil || seen[resolution] {
			return Retention{}, wrong
		}
		seen[resolution] = true
		switch resolution {
		case "1m":
			r.Minutes = d
		case "15m":
			r.Quarters = d
		default:
			return Retention{}, wrong
		}
	}
	return r, r.check()
}

// String is the retention as ParseRetention reads it.
func (r Retention) String() string {
	if r.Minutes == 0 {
		return "15m:" + inDays(r.Quarters)
	}
	return "1m:" + inDays(r.Minutes) + ",15m:" + inDays(r.Quarters)
}

func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return units.FormatDuration(d)
}

func (r Retention) check() error {
	switch {
	case r.Minutes < 0 || r.Minutes > MaxKeepMinutes || r.Minutes%time.Minute != 0:
		return &countmill.FieldError{Field: "keep", Problem: "has minutes for " + inDays(r.Minutes), Limit: "0 to 7d, in whole minutes"}
	case r.Quarters < MinKeepQuarters || r.Quarters > MaxKeepQuarters || r.Quarters%time.Minute != 0:
		return &countmill.FieldError{Field: "keep", Problem: "has quarter hours for " + inDays(r.Quarters), Limit: "1d to 3660d, in whole minutes"}
	case r.Minutes > r.Quarters:
		return &countmill.FieldError{Field: "keep", Problem: "has minutes for longer than quarter hours", Limit: retentionForm}
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
func (r *SeriesRule) Matches(counter string) bool { return patternMatches(r.Pattern, counter) }

func patternMatches(pattern, counter string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(counter, prefix)
	}
	return counter == pattern
}

// SeriesOf returns the rule in force under which the counter keeps a series, or nil.
func (r *Rules) SeriesOf(counter string) *SeriesRule {
	if r == nil {
		return nil
	}
	for i := range r.Series {
		if rule := &r.Series[i]; rule.Ended.IsZero() && rule.Matches(counter) {
			return rule
		}
	}
	return nil
}

// LastSeriesOf is SeriesOf. If no rule is in force, it returns the rule for the counter that ended
// last.
func (r *Rules) LastSeriesOf(counter string) *SeriesRule {
	if rule := r.SeriesOf(counter); rule != nil || r == nil {
		return rule
	}
	var last *SeriesRule
	for i := range r.Series {
		if rule := &r.Series[i]; rule.Matches(counter) && (last == nil || rule.Ended.After(last.Ended)) {
			last = rule
		}
	}
	return last
}

// KeepOf is how long the counter's series stays: the longest of all rules that match, because each
// rule promised that for its own increments. It is zero if there is none.
func (r *Rules) KeepOf(counter string) (keep Retention) {
	if r == nil {
		return keep
	}
	for i := range r.Series {
		if rule := &r.Series[i]; rule.Matches(counter) {
			keep.Minutes, keep.Quarters = max(keep.Minutes, rule.Keep.Minutes), max(keep.Quarters, rule.Keep.Quarters)
		}
	}
	return keep
}

// Keeps returns every retention of the rules, without repeats.
func (r *Rules) Keeps() (keeps []Retention) {
	if r == nil {
		return nil
	}
	for i := range r.Series {
		if keep := r.Series[i].Keep; !slices.Contains(keeps, keep) {
			keeps = append(keeps, keep)
		}
	}
	return keeps
}

// Oldest is the version of the oldest settings by which a commit may be made (Commit.Rules). It
// falls when the index or the rule that demanded it is gone.
func (r *Rules) Oldest() (version int64) {
	if r == nil {
		return 0
	}
	for i := range r.Indexes {
		version = max(version, r.Indexes[i].Version)
	}
	for i := range r.Journal {
		version = max(version, r.Journal[i].Version)
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
	case c.Journal != nil:
		return s.changeJournal(c, now, settle)
	case c.Filled != Period{}:
		return s.fill(c, now)
	}
	if err := CheckPattern(c.Pattern); err != nil {
		return s, err
	}
	rules := s.Rules.without(now)
	at := slices.IndexFunc(rules, func(r SeriesRule) bool { return r.Pattern == c.Pattern })
	found := at >= 0 && rules[at].Ended.IsZero()
	switch {
	case c.Remove && at < 0:
		return s, fmt.Errorf("%w: no rule keeps a series of %q", ErrNoRule, c.Pattern)
	case c.Remove && !found:
		return s, nil
	case c.Remove:
		rules[at].Ended = now
		return s.withRules(rules), nil
	}
	if err := c.Keep.check(); err != nil {
		return s, err
	}
	rule := SeriesRule{Pattern: c.Pattern, Keep: c.Keep, Since: since(now, settle)}
	switch {
	case found && rules[at].Keep == c.Keep:
		return s, nil
	case found: // it goes on without a gap
		if c.Keep.Quarters > rules[at].Keep.Quarters { // older sums are gone
			oldest := now.Add(-rules[at].Keep.Quarters).Truncate(time.Minute)
			rules[at].Since, rules[at].Filled = later(rules[at].Since, oldest), rules[at].Filled.after(oldest)
		}
		rules[at].Keep = c.Keep
	case at >= 0:
		rules[at] = rule
	case len(rules) == MaxRules:
		return s, &countmill.FieldError{Field: "pattern", Problem: "is one rule too many", Limit: fmt.Sprintf("%d rules, removed ones included while their series stay", MaxRules)}
	default:
		rules = append(rules, rule)
	}
	return s.withRules(rules), nil
}

// fill is ChangeRules for the period that an import made complete. It takes the place of an earlier one.
func (s Settings) fill(c RuleChange, now time.Time) (Settings, error) {
	rules := s.Rules.without(now)
	at := slices.IndexFunc(rules, func(r SeriesRule) bool { return r.Pattern == c.Pattern && r.Ended.IsZero() })
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
	return s.withRules(rules), nil
}

// without copies the rules, and leaves out rules that ended so long ago that nothing of their series
// is left.
func (r *Rules) without(now time.Time) (rules []SeriesRule) {
	if r == nil {
		return nil
	}
	for _, rule := range r.Series {
		if rule.Ended.IsZero() || rule.Ended.Add(rule.Keep.Quarters+SeriesSlack).After(now) {
			rules = append(rules, rule)
		}
	}
	return rules
}

func (s Settings) withRules(rules []SeriesRule) Settings {
	slices.SortFunc(rules, func(a, b SeriesRule) int { return comparePatterns(a.Pattern, b.Pattern) })
	return s.with(func(next *Rules) { next.Series = rules })
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
// refuses commits by older rules (settle 0) still takes those that lack only a series. From now until its change is in
// effect it gives out no settings.
func since(now time.Time, settle time.Duration) time.Time {
	begin := max(settle-MaxTransaction, SettingsMaxAge)
	return now.Add(begin + SeriesAhead + time.Minute - time.Nanosecond).Truncate(time.Minute)
}
