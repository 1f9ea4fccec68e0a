package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// An Update is the totals of the watched counters after a change.
type Update struct {
	Totals []Total
	// Lag is the age of the oldest increment that an aggregator holds uncommitted. LagKnown is
	// false if no aggregator has reported one lately.
	Lag      time.Duration
	LagKnown bool
}

const (
	// silence is the longest time without a line of the stream. The server sends one every 15 s.
	silence  = 45 * time.Second
	maxEvent = 4 << 20
)

// errSilent ends a connection on which nothing arrives.
var errSilent = errors.New("the stream is silent")

// Watch returns the totals of up to 100 counters whenever one changes, and once at the beginning.
// If the caller is slow it gets the newest update, not every one. After a broken connection Watch
// connects again, with pauses of up to 5 s. Errors that a repeat cannot help end it. Temporary ones
// are yielded too, and the watch goes on if the caller does. It ends with ctx.
func (c *Client) Watch(ctx context.Context, counters []string, options ...ReadOption) iter.Seq2[Update, error] {
	query := url.Values{"counter": counters}
	for _, o := range options {
		o(query)
	}
	return func(yield func(Update, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w := &watch{c: c, query: query, updates: make(chan watched, 1)}
		go w.run(ctx)
		defer func() { // run has ended when Watch returns
			cancel()
			for range w.updates {
			}
		}()
		for u := range w.updates {
			if !yield(u.Update, u.err) {
				return
			}
		}
	}
}

type watched struct {
	Update
	err error
}

// A watch is the connection of one Watch. updates holds the newest update only.
type watch struct {
	c       *Client
	query   url.Values
	updates chan watched
}

func (w *watch) run(ctx context.Context) {
	defer close(w.updates)
	for try := 0; ; try++ {
		heard, err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			try = 0
		}
		again, _ := judge(err)
		w.put(watched{err: err})
		if !again || !pause(ctx, try, err) {
			return
		}
	}
}

// put replaces an update that nobody has taken yet. run alone calls it.
func (w *watch) put(u watched) {
	select {
	case <-w.updates:
	default:
	}
	w.updates <- u
}

// follow reads one connection until it ends. heard is true if an update came.
func (w *watch) follow(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer timer.Stop()
	res, err := w.c.send(ctx, request{method: http.MethodGet, path: "/v1/watch", query: w.query})
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	var name, data string
	for lines.Scan() {
		timer.Reset(silence)
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			name = value
		case field == "data":
			data += value
		case lines.Text() == "" && data != "":
			heard = true
			w.put(event(name, data))
			name, data = "", ""
		}
	}
	err = lines.Err()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		err = errors.New("the server ended the stream")
	}
	return heard, &broken{err}
}

// event decodes an event. A problem is an error after which the server goes on.
func event(name, data string) watched {
	if name == "problem" {
		e := &Error{}
		_ = json.Unmarshal([]byte(data), e)
		var urn struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal([]byte(data), &urn)
		e.Type = strings.TrimPrefix(urn.Type, "urn:countmill:problem:")
		return watched{err: e}
	}
	var got struct {
		Totals []Total `json:"totals"`
		Lag    seconds `json:"lag"`
	}
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		return watched{err: &broken{err}}
	}
	return watched{Update: Update{Totals: got.Totals, Lag: got.Lag.d, LagKnown: got.Lag.known}}
}
