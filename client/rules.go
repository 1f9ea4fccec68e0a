package client

import (
	"context"
	"net/http"
	"time"
)

// Rules are the rules of the database.
type Rules struct {
	// Rises by 1 with each change of the settings.
	Version int64 `json:"version"`
	// In the order in which they are tried; at most 100.
	Series []Rule `json:"series"`
	// In the order in which they are tried; at most 100.
	Journal []Rule `json:"journal"`
}

// A RuleKind is a kind of rule: for series, or for the journal.
type RuleKind string

// The kinds of rules.
const (
	KindSeries  RuleKind = "series"  // sums over time
	KindJournal RuleKind = "journal" // the increments one by one, as evidence
)

// A Rule says that the counters of a pattern keep a series or a journal.
type Rule struct {
	Pattern string `json:"pattern" schema:"Pattern"`
	// As the rule was added.
	Keep string `json:"keep"`
	// From this minute the series is complete, or from this moment the journal.
	Begin time.Time `json:"begin" schema:"date-time"`
	// When the rule was removed; null for a rule in force.
	Ended *time.Time `json:"ended" schema:"date-time"`
	// The first moment of a period in which the series is complete too, by an import; null for none.
	FilledFrom *time.Time `json:"filled_from" schema:"date-time"`
	// The moment after that period.
	FilledTo *time.Time `json:"filled_to" schema:"date-time"`
}

// Rules returns the rules.
func (c *Client) Rules(ctx context.Context) (Rules, error) {
	return read[Rules](ctx, c, "/v1/rules", nil)
}

// AddRule makes the counters of a pattern keep a series or a journal for as long as keep says. It may be
// repeated.
func (c *Client) AddRule(ctx context.Context, kind RuleKind, pattern, keep string) (Rules, error) {
	return change[Rules](ctx, c, http.MethodPost, "/v1/rules/"+string(kind), nil, map[string]string{"pattern": pattern, "keep": keep})
}

// RemoveRule ends the rule with the pattern. What its counters kept stays for as long as it promised. It
// may be repeated.
func (c *Client) RemoveRule(ctx context.Context, kind RuleKind, pattern string) (Rules, error) {
	return change[Rules](ctx, c, http.MethodDelete, "/v1/rules/"+string(kind), params("pattern", pattern), nil)
}

// FillSeries says that the series of a rule are complete from one moment to another, too: an import counted all increments
// of that time. It takes the place of an earlier period. It may be repeated.
func (c *Client) FillSeries(ctx context.Context, pattern string, from, to time.Time) (Rules, error) {
	return change[Rules](ctx, c, http.MethodPost, "/v1/rules/series/filled", nil,
		map[string]string{"pattern": pattern, "from": from.UTC().Format(time.RFC3339), "to": to.UTC().Format(time.RFC3339)})
}
