package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countmill/countmill"
)

// A Total is a counter's total at one moment.
type Total struct {
	Counter string `json:"counter" schema:"CounterName"`
	// Null if it does not fit 64 bits: `error` then says so.
	Total int64 `json:"total" schema:"Number null"`
	// The type of the problem if there is no total. The other totals of the answer are good. `GET /v1/counters/{name}` answers 500
	// instead.
	Error string `json:"error,omitzero" schema:"=urn:countmill:problem:overflow"`
	// Every fold committed by then is in the total.
	AsOf   time.Time `json:"as_of"`
	Source string    `json:"source" schema:"=cache|store"`
	Shards int       `json:"shards" schema:"0..999"`
	// False for a counter that nobody has incremented, or not since it was deleted.
	Exists bool `json:"exists"`
	// Of a group: when its index was last compared with the shards of its counters. Absent for other counters.
	CheckedAt time.Time `json:"checked_at,omitzero"`
	// Of GET /v1/watch with `rates=true`: the change a second between the last two reads, in hundredths. Null until there were two.
	Rate *float64 `json:"rate,omitzero" schema:"null"`
	// For a person. Present if the counter does not exist and its name has a comma, as a list of names would. A name is never
	// split.
	Hint string `json:"hint,omitzero"`
}

// Totals are the totals of some counters.
type Totals struct {
	Totals      []Total         `json:"totals"`
	Lag         *float64        `json:"lag" schema:"Lag"`
	Unseen      *float64        `json:"unseen,omitzero" schema:"Unseen"`
	DeadLetters []DeadLetterRef `json:"dead_letters,omitzero" schema:"DeadLetterRefs"`
}

// A CounterTotal is the total of one counter.
type CounterTotal struct {
	Counter string    `json:"counter" schema:"CounterName"`
	Total   int64     `json:"total" schema:"Number"`
	AsOf    time.Time `json:"as_of"`
	Source  string    `json:"source" schema:"=cache|store"`
	Shards  int       `json:"shards" schema:"0..999"`
	Exists  bool      `json:"exists"`
	// As in a Total.
	CheckedAt time.Time `json:"checked_at,omitzero"`
	// As in a Total.
	Hint        string          `json:"hint,omitzero"`
	Lag         *float64        `json:"lag" schema:"Lag"`
	Unseen      *float64        `json:"unseen,omitzero" schema:"Unseen"`
	DeadLetters []DeadLetterRef `json:"dead_letters,omitzero" schema:"DeadLetterRefs"`
}

// A ReadOption changes one read.
type ReadOption func(url.Values)

// WithMaxStaleness accepts totals that are that old. 0 reads the store. The default is the
// server's --max-staleness.
func WithMaxStaleness(d time.Duration) ReadOption {
	return func(q url.Values) { q.Set("max_staleness", d.String()) }
}

// WithLimit changes the most counters of WatchPrefix, 1 to 1,000. The default is 100.
func WithLimit(n int) ReadOption {
	return func(q url.Values) { q.Set("limit", strconv.Itoa(n)) }
}

// WithRates gives the totals of a watch their rates. A total whose rate alone has changed is then in
// an update too.
func WithRates() ReadOption {
	return func(q url.Values) { q.Set("rates", "true") }
}

// WithInterval is how often the server looks for changes for a Watch, 100ms to 5s. Default 1s.
func WithInterval(d time.Duration) ReadOption {
	return func(q url.Values) { q.Set("interval", d.String()) }
}

// WithMinAsOf accepts no total of a moment before t. Pass the AsOf of an earlier total, and the
// counter never goes back, whichever server and cache answers (reads of one instant on PostgreSQL: docs/promises.md). Pass the CountedAsOf of Accepted, and
// the total has those increments. A time over a second ahead of the store's is refused.
func WithMinAsOf(t time.Time) ReadOption {
	return func(q url.Values) { q.Set("min_as_of", t.UTC().Format(time.RFC3339Nano)) }
}

// WithAfter asks for totals that contain every increment of a receipt (Accepted.Receipt). The server
// waits for up to wait, at most 5 s, and then answers an error that matches
// countmill.ErrNotCountedYet, which the client does not repeat. Increments in dead letters are in no
// total: the totals then come with a *DeadLetteredError.
func WithAfter(receipt string, wait time.Duration) ReadOption {
	return func(q url.Values) {
		q.Set("after", receipt)
		q.Set("wait", wait.String())
	}
}

// Total returns one total.
func (c *Client) Total(ctx context.Context, counter string, options ...ReadOption) (Total, error) {
	totals, err := c.Totals(ctx, []string{counter}, options...)
	if len(totals) == 0 {
		return Total{}, err
	}
	return totals[0], err
}

// Totals returns the totals of up to 1,000 counters, in the order asked. Totals whose Source is
// "store" are of one moment. If some do not fit 64 bits, the others come with an error that matches
// countmill.ErrOverflow and names these counters.
func (c *Client) Totals(ctx context.Context, counters []string, options ...ReadOption) ([]Total, error) {
	answer, err := c.QueryTotals(ctx, counters, options...)
	switch {
	case err != nil:
		return nil, err
	case len(answer.DeadLetters) > 0:
		err = &DeadLetteredError{answer.DeadLetters}
	}
	if _, overflowed := split(answer.Totals); len(overflowed) > 0 {
		err = errors.Join(fmt.Errorf("%w: %q", countmill.ErrOverflow, overflowed), err)
	}
	return answer.Totals, err
}

// QueryTotals is Totals with all of the answer: counters without a total have an Error, and DeadLetters may lack increments of a receipt.
func (c *Client) QueryTotals(ctx context.Context, counters []string, options ...ReadOption) (t Totals, err error) {
	body, err := encode(map[string][]string{"counters": counters})
	if err != nil {
		return t, err
	}
	err = c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/totals", Query: queryOf(options), Body: body, Safe: true, read: true}, &t)
	if err == nil && len(t.Totals) != len(counters) {
		err = &broken{c.base, errShort}
	}
	return t, err
}

func queryOf(options []ReadOption) url.Values {
	query := url.Values{}
	for _, o := range options {
		o(query)
	}
	return query
}

// split returns the totals, and the names of the counters that have none.
func split(all []Total) (totals []Total, overflowed []string) {
	for _, t := range all {
		if t.Error != "" {
			overflowed = append(overflowed, t.Counter)
			continue
		}
		totals = append(totals, t)
	}
	return totals, overflowed
}

// List returns the totals of all counters whose names begin with prefix, in the byte order of
// their names, page by page. It ends with the first error. A counter whose total does not fit 64
// bits comes with an error that matches countmill.ErrOverflow, and the list goes on.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Total, error] {
	return func(yield func(Total, error) bool) {
		for token := ""; ; {
			page, err := c.ListPage(ctx, ListQuery{prefix, token, 1000})
			if err != nil {
				yield(Total{}, err)
				return
			}
			for _, t := range page.Totals {
				if !yield(t, nil) {
					return
				}
			}
			for _, name := range page.Overflowed {
				if !yield(Total{Counter: name, Exists: true}, countmill.ErrOverflow) {
					return
				}
			}
			if token = page.Next; token == "" {
				return
			}
		}
	}
}

// A Page is a page of counters.
type Page struct {
	Totals []Total `json:"totals"`
	// Counters of this page without a total, because it does not fit 64 bits. Absent if there are none.
	Overflowed []string `json:"overflowed,omitempty" schema:"CounterName #1.."`
	// Opaque. Absent at the end.
	Next string   `json:"next_page_token,omitzero" schema:"len 1.."`
	Lag  *float64 `json:"lag" schema:"Lag"`
}

// A ListQuery asks for a page. Its zero value asks for the first 100 counters.
type ListQuery struct {
	Prefix string
	Token  string // the Next of the page before
	Limit  int    // 1 to 1,000; default 100
}

// ListPage returns a page of List. WithMinAsOf is its only option.
func (c *Client) ListPage(ctx context.Context, q ListQuery, options ...ReadOption) (Page, error) {
	query := params("prefix", q.Prefix, "page_token", q.Token, "limit", number(q.Limit))
	for _, o := range options {
		o(query)
	}
	return read[Page](ctx, c, "/v1/counters", query)
}

// Counter returns the total of one counter, with how far the pipeline is behind.
func (c *Client) Counter(ctx context.Context, counter string, options ...ReadOption) (CounterTotal, error) {
	return read[CounterTotal](ctx, c, CounterPath(counter), queryOf(options))
}
