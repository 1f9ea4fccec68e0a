package store

import (
	"fmt"
	"time"
)

// StoredRules is the JSON form in which stores keep Rules. A store embeds it in its own record, or
// writes it alone. Kinds without rules are left out, so that a build which does not know a kind refuses
// only databases that have rules of it.
type StoredRules struct {
	Series  []storedRule  `json:"series,omitempty"`
	Indexes []storedIndex `json:"indexes,omitempty"`
	Journal []storedRule  `json:"journal,omitempty"`
	// JournalFrom and JournalSince are those of Rules.
	JournalFrom  int64     `json:"journal_from,omitempty"`
	JournalSince time.Time `json:"journal_since,omitzero"`
}

type storedRule struct {
	Pattern    string    `json:"pattern"`
	Keep       string    `json:"keep"` // Retention
	Since      time.Time `json:"since"`
	Ended      time.Time `json:"ended,omitzero"`
	FilledFrom time.Time `json:"filled_from,omitzero"`
	FilledTo   time.Time `json:"filled_to,omitzero"`
	PagedSince time.Time `json:"paged_since,omitzero"`
	Version    int64     `json:"version,omitempty"`
}

type storedIndex struct {
	Name    string    `json:"name"`
	Match   string    `json:"match"`
	Group   string    `json:"group"`
	Number  int64     `json:"number"`
	Version int64     `json:"version"`
	Since   time.Time `json:"since"`
	Serving time.Time `json:"serving,omitzero"`
	Checked time.Time `json:"checked,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}

// Stored returns the rules in the form in which stores keep them.
func (r *Rules) Stored() (f StoredRules) {
	if r == nil {
		return f
	}
	f.Series, f.Journal = stored(r.Series), stored(r.Journal)
	for i := range r.Indexes {
		x := &r.Indexes[i]
		f.Indexes = append(f.Indexes, storedIndex{x.Name, x.Match, x.Group, x.Number, x.Version, x.Since, x.Serving, x.Checked, x.Ended})
	}
	f.JournalFrom, f.JournalSince = r.JournalFrom, r.JournalSince
	return f
}

func stored(rules []Rule) (all []storedRule) {
	for i := range rules {
		x := &rules[i]
		all = append(all, storedRule{x.Pattern, x.Keep.String(), x.Since, x.Ended, x.Filled.From, x.Filled.To, x.PagedSince, x.Version})
	}
	return all
}

// Rules returns the rules; nil if there are none.
func (f *StoredRules) Rules() (_ *Rules, err error) {
	if len(f.Series)+len(f.Indexes)+len(f.Journal) == 0 {
		return nil, nil
	}
	rules := &Rules{JournalFrom: f.JournalFrom, JournalSince: f.JournalSince}
	if rules.Series, err = parseStored(KindSeries, f.Series); err != nil {
		return nil, err
	}
	if rules.Journal, err = parseStored(KindJournal, f.Journal); err != nil {
		return nil, err
	}
	for _, x := range f.Indexes {
		index := Index{
			Name: x.Name, Match: x.Match, Group: x.Group, Number: x.Number, Version: x.Version,
			Since: x.Since, Serving: x.Serving, Checked: x.Checked, Ended: x.Ended,
		}
		if err := index.Parse(); err != nil {
			return nil, fmt.Errorf("the index %q: %w", x.Name, err)
		}
		rules.Indexes = append(rules.Indexes, index)
	}
	return rules, nil
}

func parseStored(kind RuleKind, all []storedRule) (rules []Rule, err error) {
	for _, x := range all {
		keep, err := ParseRetention(kind, x.Keep)
		if err != nil {
			return nil, fmt.Errorf("the rule for the %s of %q: %w", kind, x.Pattern, err)
		}
		rules = append(rules, Rule{
			Pattern: x.Pattern, Keep: keep, Since: x.Since, Ended: x.Ended, Filled: Period{x.FilledFrom, x.FilledTo}, PagedSince: x.PagedSince, Version: x.Version,
		})
	}
	return rules, nil
}
