package api

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones by name, also where the machine has none

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

const (
	defaultStep = "15m"
	defaultSpan = 24 * time.Hour
)

// A seriesCall is a request for rows, and how to write them.
type seriesCall struct {
	reader.SeriesQuery
	quoted, csv bool
}

func (a *API) series(c call) error {
	q, err := readSeriesCall(c, time.Now())
	if err != nil {
		return err
	}
	if err := c.caller().CheckAll(q.Counters); err != nil {
		return err
	}
	found, err := a.readSeries(c, q.SeriesQuery)
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Countmill-As-Of", httpserver.FormatTime(found.AsOf))
	header.Set("Countmill-Begin", found.Begin.UTC().Format(time.RFC3339))
	header.Set("Countmill-Without-Curve", found.Unbucketed.String())
	header.Add("Vary", "Accept")
	if q.csv {
		return a.writeLarge(c, "text/csv; charset=utf-8", csvOf(&found))
	}
	return a.writeLarge(c, "application/json", append((&rows{found, q}).AppendJSON(nil), '\n'))
}

// readSeries reads rows, unless too many others do. How long a client takes to read the answer does not count.
func (a *API) readSeries(c call, q reader.SeriesQuery) (found reader.Series, err error) {
	give, err := a.pools.take(seriesReads, sharesAs(c), 1)
	if err != nil {
		return found, err
	}
	defer give()
	if found, err = a.services.Reader.Series(c.ctx, q); withoutTotals(err) {
		return found, err
	}
	return found, nil
}

func readSeriesCall(c call, now time.Time) (q seriesCall, err error) {
	if q.Counters, err = namesOf(c.params.Values["counter"], "group", c.params.Values["group"]); err != nil {
		return q, err
	}
	if err := checkCount("counter", len(q.Counters), maxQuery); err != nil {
		return q, err
	}
	if q.Step, err = reader.ParseStep(cmp.Or(c.params.Get("step"), defaultStep)); err != nil {
		return q, err
	}
	q.quoted = c.quoted()
	q.csv = acceptsCSV(c.r.Header.Values("Accept"))
	zone, err := zoneOf(c.params)
	if err != nil {
		return q, err
	}
	if q.To, err = timeOf(c.params, "to", now.In(zone)); err != nil {
		return q, err
	}
	q.From, err = timeOf(c.params, "from", q.To.Add(-defaultSpan))
	return q, err
}

// acceptsCSV reports whether the client names text/csv.
func acceptsCSV(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(kind), "text/csv") {
			return true
		}
	}
	return false
}

// zoneOf returns the zone of tz; UTC if there is none.
func zoneOf(query httpserver.Params) (*time.Location, error) {
	name := query.Get("tz")
	if !query.Has("tz") {
		name = "UTC"
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, &countmill.FieldError{Field: "tz", Problem: "is not a time zone", Limit: "a name such as UTC, Asia/Kolkata or America/New_York"}
	}
	return zone, nil
}

// timeOf reads a time, or a date: the first moment of that day in the zone of the default.
func timeOf(query httpserver.Params, name string, without time.Time) (time.Time, error) {
	if !query.Has(name) {
		return without, nil
	}
	at, ok := parseTime(query.Get(name), without.Location())
	if !ok {
		return at, &countmill.FieldError{Field: name, Problem: "is not a time", Limit: "2006-01-02T15:04:05Z or 2006-01-02, with + written as %2B"}
	}
	return at, nil
}

// parseTime reads a time, or a date: the first moment of that day in the zone.
func parseTime(text string, zone *time.Location) (at time.Time, ok bool) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.In(zone), true
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return day, false
	}
	y, m, d := day.Date()
	return reader.DayBegins(y, m, d, zone), true
}

// rows are an answer, which clients see as [{"time", "counter", "value", "partial"}].
type rows struct {
	reader.Series
	seriesCall
}

// AppendJSON appends them as one JSON value.
func (r *rows) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i := range r.Rows {
		row := &r.Rows[i]
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = row.Time.AppendFormat(append(b, `{"time":"`...), time.RFC3339)
		b = appendString(append(b, `","counter":`...), row.Counter)
		b = r.appendValue(append(b, `,"value":`...), row)
		b = append(strconv.AppendBool(append(b, `,"partial":`...), row.Partial), '}')
	}
	return append(b, ']')
}

func (q *seriesCall) appendValue(b []byte, row *reader.Row) []byte {
	if row.Overflow {
		return append(b, `null,"error":"`+httpserver.TypePrefix+`overflow"`...)
	}
	return appendQuoted(b, row.Value, q.quoted)
}

func csvOf(found *reader.Series) []byte {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	_ = w.Write([]string{"time", "counter", "value", "partial"}) // a bytes.Buffer takes everything
	for i := range found.Rows {
		row := &found.Rows[i]
		value := strconv.FormatInt(row.Value, 10)
		if row.Overflow {
			value = "overflow" // no program takes it for a number
		}
		_ = w.Write([]string{row.Time.Format(time.RFC3339), row.Counter, value, strconv.FormatBool(row.Partial)})
	}
	w.Flush()
	return text.Bytes()
}
