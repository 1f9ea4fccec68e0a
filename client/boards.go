package client

import (
	"context"
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
	query := params("window", q.Window, "tz", q.Zone)
	query.Set("index", q.Index)
	return query
}

// A Top is the best counters of an index, the best first.
type Top struct {
	Top []TopCounter `json:"top" schema:"#..1000"`
	// Counters that have no place, because their total does not fit 64 bits: at most 100. Absent if there are none.
	Overflowed []string `json:"overflowed,omitempty" schema:"CounterName"`
	// All counters of the index were looked at as of this moment. All totals and places are of it.
	CompleteAsOf time.Time `json:"complete_as_of" schema:"date-time"`
	// The window began before the rule for its series, or no rule keeps a series of the overflow group.
	Partial bool `json:"partial"`
}

// A TopCounter is a counter of a Top.
type TopCounter struct {
	Counter string `json:"counter" schema:"CounterName"`
	// The total, or the sum of the window.
	Total int64 `json:"total" schema:"Number"`
	// Its place. Equal totals share a place, and the next place counts them, as in `/v1/rank`.
	Rank int `json:"rank" schema:"1.."`
}

// A Rank is the place of a counter.
type Rank struct {
	Counter string `json:"counter" schema:"CounterName"`
	// The total, or the sum of the window.
	Total int64 `json:"total" schema:"Number"`
	// Null if the counter does not exist, or has 0 in the window.
	Rank *int `json:"rank" schema:"1.."`
	// How many counters were ordered.
	Of int `json:"of" schema:"0.."`
	// All counters of the index were looked at as of this moment. All totals and places are of it.
	CompleteAsOf time.Time `json:"complete_as_of" schema:"date-time"`
	// The window began before the rule for its series, or no rule keeps a series of the overflow group.
	Partial bool `json:"partial"`
}

// Top returns the n best counters of an index; 1 to 1,000, and 10 if n is 0.
func (c *Client) Top(ctx context.Context, q BoardQuery, n int) (Top, error) {
	return read[Top](ctx, c, "/v1/top", q.top(n))
}

// TopGroups returns the n best groups of an index.
func (c *Client) TopGroups(ctx context.Context, q BoardQuery, n int) (Top, error) {
	query := q.top(n)
	query.Set("of", "groups")
	return read[Top](ctx, c, "/v1/top", query)
}

func (q *BoardQuery) top(n int) url.Values {
	query := q.values()
	if n != 0 {
		query.Set("n", strconv.Itoa(n))
	}
	return query
}

// Rank returns the place of a counter.
func (c *Client) Rank(ctx context.Context, q BoardQuery, counter string) (Rank, error) {
	query := q.values()
	query.Set("counter", counter)
	return read[Rank](ctx, c, "/v1/rank", query)
}
