package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
)

// How often counters that were asked for by name are read.
const (
	minInterval     = 100 * time.Millisecond
	maxInterval     = 5 * time.Second
	defaultInterval = time.Second
)

// tokenEvery is how often a stream looks at its token, at least.
const tokenEvery = 2 * time.Second

// A watcher is one stream. It keeps the snapshot that it has shown and no events: after a slow write it sends the
// newest totals of everything that has changed since.
type watcher struct {
	call
	a       *API
	view    view
	sent    time.Time // when something went out last
	shown   *snapshot // the client has it
	ending  []byte    // the end of the last event: lag and the like
	problem []byte    // the problem that was sent last, if no totals were sent since
}

// watch streams an event at once and one whenever something has changed. A writer
// without deadlines is refused: there a slow client could not be dropped.
func (a *API) watch(c call) error {
	order := a.orderNames
	if c.params.Has("prefix") {
		order = a.orderPrefix
	}
	o, err := order(c)
	if err != nil {
		return err
	}
	if a.closing.Err() != nil {
		return errClosing
	}
	o.caller = sharesAs(c)
	give, err := a.pools.take(streams, o.caller, 1)
	if err != nil {
		return err
	}
	defer give()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(a.closing, cancel)()

	f, err := a.feeds.join(a, o)
	if err != nil {
		return err
	}
	defer f.leave(o.limit)
	first, err := f.first(ctx, o.limit)
	if err == nil {
		err = first.err
	}
	if err == nil {
		err = httpserver.ExtendWrite(c.w, a.cfg.WriteTimeout)
	}
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // nginx holds answers back otherwise
	if c.r.Method == http.MethodHead {
		return nil
	}
	wa := &watcher{call: c, a: a, shown: new(snapshot)}
	wa.view = view{limit: o.limit, quoted: c.quoted(), rates: c.is("rates", "true"), limited: c.caller().Limited()}
	_ = wa.run(ctx, f) // the client is gone or too slow, or the server ends
	return nil
}

var errClosing = fmt.Errorf("%w: no new watchers", countmill.ErrClosed)

// run shows each reading of the feed and returns when the stream has to end. It ends with the
// token: to come back, a caller needs a token again.
func (wa *watcher) run(ctx context.Context, f *feed) error {
	silence := time.NewTimer(wa.a.cfg.KeepAlive / 2)
	defer silence.Stop()
	for {
		if !wa.caller().Current() {
			return errors.New("the watcher's token was changed or has expired")
		}
		b, renewed := f.look()
		if err := wa.show(b); err != nil {
			return err
		}
		silence.Reset(min(wa.a.cfg.KeepAlive/2-time.Since(wa.sent), tokenEvery))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C:
		case <-renewed:
		}
	}
}

// show sends an event if there is anything new, or else a comment in time for
// KeepAlive. A failed read is an event too, named problem; the stream goes on.
func (wa *watcher) show(b *snapshot) error {
	if b.err != nil {
		data := encode(httpserver.AsProblem(wa.a.asProblem(wa.call, b.err)))
		if bytes.Equal(data, wa.problem) {
			return wa.keepAlive()
		}
		wa.problem = data
		return wa.send(fmt.Appendf(nil, "event: problem\ndata: %s\n\n", data))
	}
	ending := wa.view.ending(b)
	if wa.problem == nil && bytes.Equal(ending, wa.ending) && !wa.view.anyNews(wa.shown, b) {
		wa.shown = b
		return wa.keepAlive()
	}
	if err := wa.begin(); err != nil {
		return err
	}
	if err := wa.view.write(wa.w, wa.shown, b, ending); err != nil {
		return err
	}
	wa.shown, wa.ending, wa.problem = b, ending, nil
	return http.NewResponseController(wa.w).Flush()
}

func (wa *watcher) keepAlive() error {
	if time.Since(wa.sent) < wa.a.cfg.KeepAlive/2 {
		return nil
	}
	return wa.send([]byte(": keep-alive\n\n"))
}

// begin gives the client WriteTimeout to read the next event: a client that does not read is
// not waited for.
func (wa *watcher) begin() error {
	wa.sent = time.Now()
	return httpserver.ExtendWrite(wa.w, wa.a.cfg.WriteTimeout)
}

func (wa *watcher) send(event []byte) error {
	if err := wa.begin(); err != nil {
		return err
	}
	if _, err := wa.w.Write(event); err != nil {
		return err
	}
	return http.NewResponseController(wa.w).Flush()
}

// orderPrefix is the order of a watcher with a prefix. All watchers with the same one share a
// feed.
func (a *API) orderPrefix(c call) (order, error) {
	for _, name := range []string{"counter", "group", "interval", "max_staleness", "min_as_of"} {
		if c.params.Has(name) {
			return order{}, &countmill.FieldError{Field: name, Problem: "is given beside prefix", Limit: "prefix with limit, or counter with interval, max_staleness and min_as_of"}
		}
	}
	limit := c.number("limit")
	ranges, err := c.caller().Ranges("prefix", c.params.Get("prefix"))
	if err != nil {
		return order{}, err
	}
	return order{
		key: fmt.Sprintf("%q", ranges), limit: limit, interval: prefixInterval,
		source: &prefixSource{reader: a.services.Reader, ranges: ranges},
	}, nil
}

// orderNames is the order of a watcher with names. It has a feed of its own: its first event
// must be read after its request.
func (a *API) orderNames(c call) (order, error) {
	if c.params.Has("limit") {
		return order{}, &countmill.FieldError{Field: "limit", Problem: "is given without prefix", Limit: "only with prefix"}
	}
	counters, err := namesOf(c.params.Values["counter"], "group", c.params.Values["group"])
	if err != nil {
		return order{}, err
	}
	if err := checkCount("counter", len(counters), maxQuery); err != nil {
		return order{}, err
	}
	interval, err := watchInterval(c.params)
	if err != nil {
		return order{}, err
	}
	maxStaleness, minAsOf, err := freshness(c.params)
	if err != nil {
		return order{}, err
	}
	if err := c.caller().CheckAll(counters); err != nil {
		return order{}, err
	}
	return order{
		limit: len(counters), interval: interval,
		source: &namedSource{reader: a.services.Reader, counters: counters, maxStaleness: maxStaleness, minAsOf: minAsOf, interval: interval},
	}, nil
}

func watchInterval(query httpserver.Params) (time.Duration, error) {
	if !query.Has("interval") {
		return defaultInterval, nil
	}
	d, err := time.ParseDuration(query.Get("interval"))
	if err != nil || d < minInterval || d > maxInterval {
		return 0, &countmill.FieldError{Field: "interval", Problem: "is not a duration in range",
			Limit: fmt.Sprintf("%s to %s", minInterval, maxInterval)}
	}
	return d, nil
}
