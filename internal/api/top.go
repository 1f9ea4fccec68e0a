package api

import (
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
)

// top answers with the best counters of an index.
func (a *API) top(c call) (any, error) {
	board, err := boardQuery(c)
	if err != nil {
		return nil, err
	}
	board.Groups = c.is("of", "groups")
	found, err := a.services.Reader.Top(c.ctx, reader.TopQuery{BoardQuery: board, N: c.number("n")})
	return &topAnswer{found, c.quoted()}, err
}

// rank answers with the place of a counter.
func (a *API) rank(c call) (any, error) {
	counter := c.params.Get("counter")
	if counter == "" {
		return nil, &countmill.FieldError{Field: "counter", Problem: "is missing", Limit: "1 to 500 bytes"}
	}
	if err := c.caller().Check(counter); err != nil {
		return nil, err
	}
	q, err := boardQuery(c)
	if err != nil {
		return nil, err
	}
	found, err := a.services.Reader.Rank(c.ctx, q, counter)
	return &rankAnswer{found, c.quoted()}, err
}

// boardQuery reads what top and rank have in common.
func boardQuery(c call) (q reader.BoardQuery, err error) {
	params, caller := c.params, c.caller()
	q.Caller, q.MayRead = caller.Name, caller.May
	if q.Index = params.Get("index"); q.Index == "" {
		return q, &countmill.FieldError{Field: "index", Problem: "is missing", Limit: "the name of an index"}
	}
	if params.Has("tz") && params.Get("window") == "" {
		return q, &countmill.FieldError{Field: "tz", Problem: "is given without window", Limit: "with window today, this-week or this-month"}
	}
	zone := time.UTC
	if params.Get("tz") != "" {
		if zone, err = zoneOf(params); err != nil {
			return q, err
		}
	}
	q.Window, err = reader.ParseWindow(params.Get("window"), zone)
	return q, err
}

// topAnswer is how clients see a Top.
type topAnswer struct {
	reader.Top
	quoted bool
}

// AppendJSON makes it an httpserver.Appender.
func (t *topAnswer) AppendJSON(b []byte) []byte {
	b = append(b, `{"top":[`...)
	for i, c := range t.Top.Top {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"counter":`...), c.Counter)
		b = appendQuoted(append(b, `,"total":`...), c.Sum, t.quoted)
		b = append(strconv.AppendInt(append(b, `,"rank":`...), int64(c.Rank), 10), '}')
	}
	if len(t.Overflowed) > 0 {
		b = appendNames(append(b, `],"overflowed":[`...), t.Overflowed)
	}
	return appendScan(append(b, ']'), &t.Scan)
}

func appendQuoted(b []byte, n int64, quoted bool) []byte {
	if !quoted {
		return strconv.AppendInt(b, n, 10)
	}
	return append(strconv.AppendInt(append(b, '"'), n, 10), '"')
}

func appendScan(b []byte, s *reader.Scan) []byte {
	b = appendTime(append(b, `,"complete_as_of":"`...), s.CompleteAsOf)
	return append(strconv.AppendBool(append(b, `","partial":`...), s.Partial), '}')
}

// rankAnswer is how clients see a Rank.
type rankAnswer struct {
	reader.Rank
	quoted bool
}

// AppendJSON makes it an httpserver.Appender.
func (r *rankAnswer) AppendJSON(b []byte) []byte {
	b = appendString(append(b, `{"counter":`...), r.Counter)
	b = appendQuoted(append(b, `,"total":`...), r.Total, r.quoted)
	b = append(b, `,"rank":`...)
	if r.Rank.Rank == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(r.Rank.Rank), 10)
	}
	return appendScan(strconv.AppendInt(append(b, `,"of":`...), int64(r.Of), 10), &r.Scan)
}
