package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// A boardSource reads a board. In a stream each read is an event of its own.
type boardSource struct {
	event string
	key   string // those with the same key and the same rights share a read of a stream
	limit int    // of the counters in an answer
	ask   func(ctx context.Context) (boardAnswer, error)
}

type boardAnswer interface {
	httpserver.Appender
	appendNews([]byte) []byte
}

// bestCounters is the board of a request for the best counters.
func (a *API) bestCounters(c call) (s boardSource, err error) {
	q := reader.TopQuery{N: c.number("n")}
	if q.BoardQuery, err = boardQuery(c); err != nil {
		return s, err
	}
	q.Groups = c.is("of", "groups")
	quoted := c.quoted()
	return boardSource{"top", fmt.Sprintf("top %q %s %t %d %t", q.Index, q.Window, q.Groups, q.N, quoted), q.N, func(ctx context.Context) (boardAnswer, error) {
		found, err := a.services.Reader.Top(ctx, q)
		return &topAnswer{found, quoted}, err
	}}, err
}

// place is the board of a request for the place of a counter.
func (a *API) place(c call) (s boardSource, err error) {
	counter := c.params.Get("counter")
	if counter == "" {
		return s, &countmill.FieldError{Field: "counter", Problem: "is missing", Limit: "1 to 500 bytes"}
	}
	if err := c.caller().Check(counter); err != nil {
		return s, err
	}
	q, err := boardQuery(c)
	if err != nil {
		return s, err
	}
	quoted := c.quoted()
	return boardSource{"rank", fmt.Sprintf("rank %q %s %q %t", q.Index, q.Window, counter, quoted), 1, func(ctx context.Context) (boardAnswer, error) {
		found, err := a.services.Reader.Rank(ctx, q, counter)
		return &rankAnswer{found, quoted}, err
	}}, err
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

func (a *API) top(c call) (any, error)  { return a.answerBoard(c, a.bestCounters) }
func (a *API) rank(c call) (any, error) { return a.answerBoard(c, a.place) }
func (a *API) watchTop(c call) error    { return a.watchBoard(c, a.bestCounters) }
func (a *API) watchRank(c call) error   { return a.watchBoard(c, a.place) }

// answerBoard answers once, unless too many others wait for boards.
func (a *API) answerBoard(c call, source func(call) (boardSource, error)) (any, error) {
	s, err := source(c)
	if err != nil {
		return nil, err
	}
	give, err := a.pools.take(boardReads, sharesAs(c), 1)
	if err != nil {
		return nil, err
	}
	defer give()
	answer, err := s.ask(c.ctx)
	return answer, asBoardProblem(err)
}

// watchBoard streams answers as watch streams totals. An event has the whole answer. Watchers of the same board with the
// same prefixes share its reads, which ask for the rights of one of them.
func (a *API) watchBoard(c call, source func(call) (boardSource, error)) error {
	s, err := source(c)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s %q", s.key, c.caller().Prefixes())
	return a.stream(c, &watcher{a: a, caller: c.caller(), w: c.w}, order{key: key, limit: s.limit, interval: prefixInterval, source: s})
}

func asBoardProblem(err error) error {
	if none, ok := errors.AsType[*reader.NoIndexError](err); ok {
		return httpserver.NewProblem(http.StatusNotFound, "no-index", "no index", none.Error())
	}
	if none, ok := errors.AsType[*reader.NoWindowError](err); ok {
		return httpserver.NewProblem(http.StatusNotFound, "no-series", "no series", none.Error())
	}
	if building, ok := errors.AsType[*reader.NotServingError](err); ok {
		return notServing(building)
	}
	if errors.Is(err, reader.ErrNoBoards) {
		return httpserver.NewProblem(http.StatusConflict, "no-boards", "no boards", err.Error())
	}
	return err
}

// topAnswer is how clients see a Top.
type topAnswer struct {
	reader.Top
	quoted bool
}

// appendNews appends the part of the answer whose change is worth an event.
func (t *topAnswer) appendNews(b []byte) []byte {
	b = append(b, `"top":[`...)
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
	return append(b, ']')
}

// AppendJSON makes it an httpserver.Appender.
func (t *topAnswer) AppendJSON(b []byte) []byte {
	return append(appendScan(t.appendNews(append(b, '{')), &t.Scan), '}')
}

func appendQuoted(b []byte, n int64, quoted bool) []byte {
	if !quoted {
		return strconv.AppendInt(b, n, 10)
	}
	return append(strconv.AppendInt(append(b, '"'), n, 10), '"')
}

func appendScan(b []byte, s *reader.Scan) []byte {
	b = appendTime(append(b, `,"complete_as_of":"`...), s.CompleteAsOf)
	return strconv.AppendBool(append(b, `","partial":`...), s.Partial)
}

// rankAnswer is how clients see a Rank.
type rankAnswer struct {
	reader.Rank
	quoted bool
}

func (r *rankAnswer) appendNews(b []byte) []byte {
	b = appendString(append(b, `"counter":`...), r.Counter)
	b = appendQuoted(append(b, `,"total":`...), r.Total, r.quoted)
	b = append(b, `,"rank":`...)
	if r.Rank.Rank == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(r.Rank.Rank), 10)
	}
	return strconv.AppendInt(append(b, `,"of":`...), int64(r.Of), 10)
}

// AppendJSON makes it an httpserver.Appender.
func (r *rankAnswer) AppendJSON(b []byte) []byte {
	return append(appendScan(r.appendNews(append(b, '{')), &r.Scan), '}')
}

func (s boardSource) read(ctx context.Context, _ int) (reading, error) {
	answer, err := s.ask(ctx)
	if err != nil {
		return reading{}, asBoardProblem(err)
	}
	event := append([]byte("event: "+s.event+"\ndata: "), answer.AppendJSON(nil)...)
	return reading{event: append(event, "\n\n"...), news: answer.appendNews(nil)}, nil
}
