package client

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/countmill/countmill"
)

// A Row is the sum of a counter's increments in one step of time.
type Row struct {
	// The beginning of the row, in the zone of the request.
	Time    time.Time `json:"time" schema:"date-time"`
	Counter string    `json:"counter" schema:"CounterName"`
	// The sum of the increments of this time. Null if it does not fit 64 bits: `error` then says so.
	Value int64 `json:"value" schema:"Number null"`
	// The type of the problem if there is no value. In CSV the value is then `overflow`.
	Error string `json:"error,omitzero" schema:"=urn:countmill:problem:overflow"`
	// The row is not over, or the rule does not cover all of it.
	Partial bool `json:"partial"`
}

// A SeriesQuery asks for rows. Its zero value, with Counters, asks for the quarter hours of the last
// 24 hours in UTC.
type SeriesQuery struct {
	// Counters are 1 to 100 names.
	Counters []string
	// Step is the length of a row: 15m, 1d, 1w, 1mo and others. Default 15m.
	Step string
	// Zone is the time zone of days and longer steps, by its name. Default UTC.
	Zone string
	// From is rounded down and To up to whole rows. Defaults: 24 hours before To, and now.
	From, To time.Time
}

func (q *SeriesQuery) values() url.Values {
	v := url.Values{"counter": q.Counters}
	for name, text := range map[string]string{"step": q.Step, "tz": q.Zone} {
		if text != "" {
			v.Set(name, text)
		}
	}
	for name, t := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339))
		}
	}
	return v
}

// Series returns rows by counter, in the order asked, and by time; at most 10,000. All are as of one
// moment. Each counter needs a rule (AddRule): ErrNotFound names one without. If some values do not fit 64 bits, the
// other rows come with an error that matches countmill.ErrOverflow.
func (c *Client) Series(ctx context.Context, q SeriesQuery, options ...ReadOption) (rows []Row, err error) {
	query := q.values()
	for _, o := range options {
		o(query)
	}
	rows, err = read[[]Row](ctx, c, "/v1/series", query)
	if at := slices.IndexFunc(rows, func(r Row) bool { return r.Error != "" }); err == nil && at >= 0 {
		err = fmt.Errorf("%w: counter %q at %s", countmill.ErrOverflow, rows[at].Counter, rows[at].Time.Format(time.RFC3339))
	}
	return rows, err
}
