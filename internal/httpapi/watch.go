package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
)

// How often a watcher's counters are read.
const (
	minInterval     = 100 * time.Millisecond
	maxInterval     = 5 * time.Second
	defaultInterval = time.Second
)

// A frame is the contents of an event.
type frame struct {
	Totals json.RawMessage `json:"totals"`
	Lag    *float64        `json:"lag"`
	Rates  *rates          `json:"rates"` // null until the aggregators have been seen twice

	essence json.RawMessage // Totals without what differs at every read
}

// rates are those of all counters and aggregators together.
type rates struct {
	Entries float64 `json:"entries_per_second"`
	Commits float64 `json:"commits_per_second"`
}

// A watcher is one stream.
type watcher struct {
	a            *API
	caller       access.Caller
	counters     []string
	interval     time.Duration
	maxStaleness time.Duration
	minAsOf      time.Time
	quoted       bool

	w    http.ResponseWriter
	sent time.Time // when something went out last
	last []byte    // the last event, without as_of and source
}

// watch streams an event at once and one whenever something has changed. A writer
// without deadlines is refused: there a slow client could not be dropped.
func (a *API) watch(c call) error {
	wa, err := a.newWatcher(c)
	if err != nil {
		return err
	}
	defer a.watchers.Add(-1)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(a.closing, cancel)()

	first, err := wa.read(ctx)
	if err == nil {
		err = api.ExtendWrite(c.w, a.cfg.WriteTimeout)
	}
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // nginx holds answers back otherwise
	if c.r.Method == http.MethodHead {
		return nil
	}
	if err := wa.show(first, nil); err == nil {
		_ = wa.run(ctx) // the client is gone or too slow, or the server ends
	}
	return nil
}

// newWatcher takes a place, which the caller gives back.
func (a *API) newWatcher(c call) (_ *watcher, err error) {
	wa := &watcher{a: a, caller: c.caller(), counters: c.params.All("counter"), w: c.w}
	if err := checkCount("counter", len(wa.counters), MaxQuery); err != nil {
		return nil, err
	}
	if wa.interval, err = watchInterval(c.params); err != nil {
		return nil, err
	}
	wa.interval = min(wa.interval, a.cfg.KeepAlive/2) // comments go out at a read
	if wa.quoted, err = asString(c.params); err != nil {
		return nil, err
	}
	if wa.maxStaleness, wa.minAsOf, err = freshness(c.params); err != nil {
		return nil, err
	}
	if err := wa.caller.CheckAll(wa.counters); err != nil {
		return nil, err
	}
	if a.closing.Err() != nil {
		return nil, fmt.Errorf("%w: no new watchers", countmill.ErrClosed)
	}
	if a.watchers.Add(1) > int64(a.cfg.MaxWatchers) {
		a.watchers.Add(-1)
		return nil, fmt.Errorf("%w: %d watchers", countmill.ErrOverloaded, a.cfg.MaxWatchers)
	}
	return wa, nil
}

func watchInterval(query api.Params) (time.Duration, error) {
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

// run reads again every interval and returns when the stream has to end. It ends with the
// token: a caller who comes back needs a token again.
func (wa *watcher) run(ctx context.Context) error {
	if wa.maxStaleness < 0 { // let watchers of the same counters share reads
		wa.maxStaleness = wa.interval / 2
	}
	tick := time.NewTicker(wa.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if !wa.caller.Current() {
			return errors.New("the watcher's token was changed or has expired")
		}
		f, err := wa.read(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := wa.show(f, err); err != nil {
			return err
		}
	}
}

// read takes at most half of KeepAlive, which leaves the other half to the silence
// before it.
func (wa *watcher) read(ctx context.Context) (frame, error) {
	ctx, cancel := context.WithTimeout(ctx, min(wa.a.cfg.Timeout, wa.a.cfg.KeepAlive/2))
	defer cancel()
	ts, err := wa.a.services.Reader.TotalsSince(ctx, wa.counters, wa.maxStaleness, wa.minAsOf)
	if err != nil {
		return frame{}, sayWhichCounter(err)
	}
	p := wa.a.services.Reader.Pipeline(ctx)
	f := frame{Totals: appendTotals(nil, ts, wa.quoted), Lag: lagOf(p), Rates: ratesOf(p)}
	still := slices.Clone(ts)
	for i := range still {
		still[i].AsOf, still[i].Source = time.Time{}, ""
	}
	f.essence = appendTotals(nil, still, wa.quoted)
	return f, nil
}

func ratesOf(p reader.Pipeline) *rates {
	if !p.RatesKnown {
		return nil
	}
	return &rates{p.Entries, p.Commits}
}

// show sends an event if there is anything new, or else a comment in time for
// KeepAlive. A failed read is an event too, named problem; the stream goes on.
func (wa *watcher) show(f frame, err error) error {
	name, data, essence := "totals", []byte(nil), []byte(nil)
	if err != nil {
		name, data = "problem", encode(api.AsProblem(err))
		essence = data
	} else {
		data = encode(f)
		f.Totals = f.essence
		essence = encode(f)
	}
	if !bytes.Equal(essence, wa.last) {
		wa.last = essence
		return wa.send(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data))
	}
	if time.Since(wa.sent)+wa.interval > wa.a.cfg.KeepAlive/2 {
		return wa.send([]byte(": keep-alive\n\n"))
	}
	return nil
}

// encode writes JSON on one line, as an event's data must be.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // these types always encode
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// send writes within WriteTimeout or fails: a client that does not read is not waited
// for.
func (wa *watcher) send(event []byte) error {
	wa.sent = time.Now()
	if err := api.ExtendWrite(wa.w, wa.a.cfg.WriteTimeout); err != nil {
		return err
	}
	if _, err := wa.w.Write(event); err != nil {
		return err
	}
	return http.NewResponseController(wa.w).Flush()
}
