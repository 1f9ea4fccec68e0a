package store

import (
	"fmt"
	"time"
)

// StoredRules is the JSON form in which stores keep Rules. A store embeds it in its own record, or
// writes it alone. Kinds without rules are left out, so that a build which does not know a kind refuses
// only databases that have rules of it.
type StoredRules struct {
	Series  []storedSeriesRule  `json:"series,omitempty"`
	Indexes []storedIndex       `json:"indexes,omitempty"`
	Journal []storedJournalRule `json:"journal,omitempty"`
	// JournalFrom and JournalSince are those of Rules.
	JournalFrom  int64     `json:"journal_from,omitempty"`
	JournalSince time.Time `json:"journal_since,omitzero"`
}

type storedSeriesRule struct {
	Pattern string    `json:"pattern"`
	Keep    string    `json:"keep"` // Retention
	Since   time.Time `json:"since"`
	Ended   time.Time `json:"ended,omitzero"`
	// FilledFrom and FilledTo are SeriesRule.Filled.
	FilledFrom time.Time `json:"filled_from,omitzero"`
	FilledTo   time.Time `json:"filled_to,omitzero"`
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

type storedJournalRule struct {
	Pattern    string    `json:"pattern"`
	Keep       string    `json:"keep"` // JournalChange
	PagedSince time.Time `json:"paged_since,omitzero"`
	Version    int64     `json:"version"`
	Since      time.Time `json:"since"`
	Ended      time.Time `json:"ended,omitzero"`
}

// Stored returns the rules in the form in which stores keep them.
func (r *Rules) Stored() (f StoredRules) {
	if r == nil {
		return f
	}
	for _, x := range r.Series {
		f.Series = append(f.Series, storedSeriesRule{x.Pattern, x.Keep.String(), x.Since, x.Ended, x.Filled.From, x.Filled.To})
	}
	for i := range r.Indexes {
		x := &r.Indexes[i]
		f.Indexes = append(f.Indexes, storedIndex{x.Name, x.Match, x.Group, x.Number, x.Version, x.Since, x.Serving, x.Checked, x.Ended})
	}
	f.JournalFrom, f.JournalSince = r.JournalFrom, r.JournalSince
	for i := range r.Journal {
		x := &r.Journal[i]
		f.Journal = append(f.Journal, storedJournalRule{x.Pattern, x.Change().String(), x.PagedSince, x.Version, x.Since, x.Ended})
	}
	return f
}

// Rules returns the rules; nil if there are none.
func (f *StoredRules) Rules() (*Rules, error) {
	if len(f.Series)+len(f.Indexes)+len(f.Journal) == 0 {
		return nil, nil
	}
	rules := &Rules{JournalFrom: f.JournalFrom, JournalSince: f.JournalSince}
	for _, x := range f.Series {
		keep, err := ParseRetention(x.Keep)
		if err != nil {
			return nil, fmt.Errorf("the rule for %q: %w", x.Pattern, err)
		}
		rules.Series = append(rules.Series, SeriesRule{Pattern: x.Pattern, Keep: keep, Since: x.Since, Ended: x.Ended, Filled: Period{x.FilledFrom, x.FilledTo}})
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
	for _, x := range f.Journal {
		c, err := ParseJournalKeep(x.Keep)
		if err != nil {
			return nil, fmt.Errorf("the journal of %q: %w", x.Pattern, err)
		}
		rules.Journal = append(rules.Journal, JournalRule{
			Pattern: x.Pattern, Keep: c.Keep, Paged: c.Paged, PagedSince: x.PagedSince, Version: x.Version, Since: x.Since, Ended: x.Ended,
		})
	}
	return rules, nil
}
