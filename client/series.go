package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/countmill/countmill"
)

// A Row is the sum of a counter's increments in one step of time.
type Row struct {
	// Time is the beginning, in the zone of the query.
	Time    time.Time `json:"time"`
	Counter string    `json:"counter"`
	Value   int64     `json:"value"`
	// Error is the type of a problem if Value does not fit 64 bits. Value is then 0.
	Error string `json:"error"`
	// Partial is true for a row that is not over, or not wholly covered by the rule.
	Partial bool `json:"partial"`
	// Rate is Value a second; 0 without SeriesQuery.Rate.
	Rate float64 `json:"rate"`
	// Earlier is the value of the earlier row; nil without SeriesQuery.Compare, or if that row is
	// not wholly covered.
	Earlier *int64 `json:"earlier"`
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
	// Rate asks for Row.Rate.
	Rate bool
	// Compare asks for Row.Earlier, and says how much earlier: 1w. Default: it is not asked for.
	Compare string
}

func (q *SeriesQuery) values() url.Values {
	v := url.Values{"counter": q.Counters}
	for name, text := range map[string]string{"step": q.Step, "tz": q.Zone, "compare": q.Compare} {
		if text != "" {
			v.Set(name, text)
		}
	}
	for name, t := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339))
		}
	}
	if q.Rate {
		v.Set("rate", "true")
	}
	return v
}

// Series returns rows by counter, in the order asked, and by time; at most 10,000. All are as of one
// moment. Each counter needs a rule (AddSeries): ErrNotFound names one without. If some values do not fit 64 bits, the
// other rows come with an error that matches countmill.ErrOverflow.
func (c *Client) Series(ctx context.Context, q SeriesQuery) (rows []Row, err error) {
	err = c.call(ctx, Request{Method: http.MethodGet, Path: "/v1/series", Query: q.values(), Safe: true, read: true}, &rows)
	if at := slices.IndexFunc(rows, func(r Row) bool { return r.Error != "" }); err == nil && at >= 0 {
		err = fmt.Errorf("%w: counter %q at %s", countmill.ErrOverflow, rows[at].Counter, rows[at].Time.Format(time.RFC3339))
	}
	return rows, err
}
