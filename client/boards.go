package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A BoardQuery says how the counters of an index are ordered. Its zero value, with Index, orders them by total.
type BoardQuery struct {
	Index string
	// Window orders by the increments of a time: today, this-week, this-month or 1h. It needs a rule for series
	// (AddRule): ErrNotFound says so.
	Window string
	// Zone is the time zone of the days of Window, by its name. Default UTC.
	Zone string
}

func (q *BoardQuery) values() url.Values {
	v := url.Values{"index": {q.Index}}
	for name, text := range map[string]string{"window": q.Window, "tz": q.Zone} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}

// A Scan says what the look at all counters was from which an answer comes.
type Scan struct {
	// CompleteAsOf is the moment of the look: all totals and places are as of then.
	CompleteAsOf time.Time `json:"complete_as_of"`
	// Partial is true if the window began before the rule for its series, or if no rule keeps a series of the overflow group.
	Partial bool `json:"partial"`
}

// A Top is the best counters of an index, the best first.
type Top struct {
	Scan
	Top []TopCounter `json:"top"`
	// Overflowed are counters that have no place, because their total does not fit 64 bits.
	Overflowed []string `json:"overflowed"`
}

// A TopCounter is a counter with its total, or with the sum of the window.
type TopCounter struct {
	Counter string `json:"counter"`
	Total   int64  `json:"total"`
	// Rank is its place. Equal totals share a place, and the next place counts them.
	Rank int `json:"rank"`
}

// A Rank is the place of a counter.
type Rank struct {
	Scan
	Counter string `json:"counter"`
	Total   int64  `json:"total"` // or the sum of the window
	// Rank is 1 for the best; nil if the counter did not exist then, or had 0 in the window.
	Rank *int `json:"rank"`
	Of   int  `json:"of"` // how many counters were ordered
}

// Top returns the n best counters of an index; 1 to 1,000, and 10 if n is 0.
func (c *Client) Top(ctx context.Context, q BoardQuery, n int) (Top, error) {
	return c.top(ctx, q.values(), n)
}

// TopGroups returns the n best groups of an index.
func (c *Client) TopGroups(ctx context.Context, q BoardQuery, n int) (Top, error) {
	query := q.values()
	query.Set("of", "groups")
	return c.top(ctx, query, n)
}

func (c *Client) top(ctx context.Context, query url.Values, n int) (t Top, err error) {
	if n != 0 {
		query.Set("n", strconv.Itoa(n))
	}
	return t, c.call(ctx, Request{Method: http.MethodGet, Path: "/v1/top", Query: query, Safe: true, read: true}, &t)
}

// Rank returns the place of a counter.
func (c *Client) Rank(ctx context.Context, q BoardQuery, counter string) (r Rank, err error) {
	query := q.values()
	query.Set("counter", counter)
	return r, c.call(ctx, Request{Method: http.MethodGet, Path: "/v1/rank", Query: query, Safe: true, read: true}, &r)
}
