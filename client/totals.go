package client

import (
	"context"
	"encoding/json"
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
	Counter string    `json:"counter"`
	Total   int64     `json:"total"`
	AsOf    time.Time `json:"as_of"`  // every commit until then is in Total
	Source  string    `json:"source"` // cache or store
	Shards  int       `json:"shards"`
	Exists  bool      `json:"exists"` // false for a counter that nobody has incremented
	// Error is the type of a problem if Total does not fit 64 bits. Total is then 0.
	Error string `json:"error"`
	// Rate is the change a second, in an update of a watch WithRates. It is 0 until it is known.
	Rate float64 `json:"rate"`
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
// counter never goes back, whichever server and cache answers. Pass the CountedAsOf of Accepted, and
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
	query := url.Values{}
	for _, o := range options {
		o(query)
	}
	body, err := encode(map[string][]string{"counters": counters})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Totals      []Total         `json:"totals"`
		DeadLetters []DeadLetterRef `json:"dead_letters"`
	}
	err = c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/totals", Query: query, Body: body, Safe: true, read: true}, &answer)
	switch {
	case err != nil:
		return nil, err
	case len(answer.Totals) != len(counters):
		return nil, &broken{c.base, errShort}
	case len(answer.DeadLetters) > 0:
		err = &DeadLetteredError{answer.DeadLetters}
	}
	if _, overflowed := split(answer.Totals); len(overflowed) > 0 {
		err = errors.Join(fmt.Errorf("%w: %q", countmill.ErrOverflow, overflowed), err)
	}
	return answer.Totals, err
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
			page, err := c.page(ctx, prefix, token)
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

type page struct {
	Totals     []Total  `json:"totals"`
	Overflowed []string `json:"overflowed"`
	Next       string   `json:"next_page_token"`
}

func (c *Client) page(ctx context.Context, prefix, token string) (p page, err error) {
	query := url.Values{"prefix": {prefix}, "limit": {"1000"}}
	if token != "" {
		query.Set("page_token", token)
	}
	return p, c.call(ctx, Request{Path: "/v1/counters", Query: query}.complete(), &p)
}

// seconds is a number of seconds in JSON, or null.
type seconds struct {
	known bool
	d     time.Duration
}

func (s *seconds) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	s.known, s.d = err == nil, time.Duration(f*float64(time.Second))
	return err
}

var _ json.Unmarshaler = (*seconds)(nil)
