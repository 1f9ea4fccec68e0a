package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Rules are the rules of the database, in the order in which they are tried.
type Rules struct {
	// Version rises by 1 with each change of the settings.
	Version int64  `json:"version"`
	Series  []Rule `json:"series"`
	Journal []Rule `json:"journal"`
}

// A RuleKind says what the rules of a kind keep of their counters.
type RuleKind string

// The kinds of rules.
const (
	KindSeries  RuleKind = "series"  // sums over time
	KindJournal RuleKind = "journal" // the increments one by one, as evidence
)

// A Rule says that the counters of a pattern keep a series or a journal.
type Rule struct {
	// Pattern is the name of a counter, or a prefix followed by *.
	Pattern string `json:"pattern"`
	// Keep is how long sums stay: 1m:6h,15m:400d keeps minutes for 6 hours and quarter hours for
	// 400 days. In a rule for the journal it is how long entries stay: 400d, or 400d,paged for fast pages.
	Keep string `json:"keep"`
	// Begin is the first minute of a complete series, or the moment from which the journal is complete.
	Begin time.Time `json:"begin"`
	// FilledFrom and FilledTo are a period that is complete too, by an import; nil for none, and in Journal.
	FilledFrom *time.Time `json:"filled_from"`
	FilledTo   *time.Time `json:"filled_to"`
	// Ended is when the rule was removed; nil for a rule in force.
	Ended *time.Time `json:"ended"`
}

// Rules returns the rules.
func (c *Client) Rules(ctx context.Context) (r Rules, err error) {
	return r, c.call(ctx, Request{Method: http.MethodGet, Path: "/v1/rules", Safe: true, read: true}, &r)
}

// AddRule makes the counters of a pattern keep a series or a journal for as long as keep says. It may be
// repeated.
func (c *Client) AddRule(ctx context.Context, kind RuleKind, pattern, keep string) (r Rules, err error) {
	body, err := encode(map[string]string{"pattern": pattern, "keep": keep})
	if err != nil {
		return r, err
	}
	return r, c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/rules/" + string(kind), Body: body, Safe: true}, &r)
}

// RemoveRule ends the rule with the pattern. What its counters kept stays for as long as it promised. It
// may be repeated.
func (c *Client) RemoveRule(ctx context.Context, kind RuleKind, pattern string) (r Rules, err error) {
	query := url.Values{"pattern": {pattern}}
	return r, c.call(ctx, Request{Method: http.MethodDelete, Path: "/v1/rules/" + string(kind), Query: query, Safe: true}, &r)
}

// FillSeries says that the series of a rule are complete from one moment to another, too: an import counted all increments
// of that time. It takes the place of an earlier period. It may be repeated.
func (c *Client) FillSeries(ctx context.Context, pattern string, from, to time.Time) (r Rules, err error) {
	body, err := encode(map[string]string{"pattern": pattern, "from": from.UTC().Format(time.RFC3339), "to": to.UTC().Format(time.RFC3339)})
	if err != nil {
		return r, err
	}
	return r, c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/rules/series/filled", Body: body, Safe: true}, &r)
}
