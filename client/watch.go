package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
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

// Watch returns the totals of up to 100 counters whenever one changes, and once at the beginning.
// If the caller is slow it gets the newest update, not every one. After a broken connection Watch
// connects again, with pauses of up to 5 s, WithTries times in a row. Errors that a repeat cannot help end it. Temporary ones
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
	for try := 1; ; try++ {
		heard, err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			try = 1
		}
		again, _ := judge(err)
		w.put(watched{err: err})
		if !again || try == w.c.tries || !pause(ctx, try, err, nil) {
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
	for e, err := range w.c.Events(ctx, Request{Path: "/v1/watch", Query: w.query}) {
		if err != nil {
			return heard, err
		}
		heard = true
		w.put(w.read(e))
	}
	return heard, context.Cause(ctx)
}

// read decodes an event. A problem is an error after which the server goes on.
func (w *watch) read(e Event) watched {
	if p := e.Problem(); p != nil {
		return watched{err: p}
	}
	var got struct {
		Totals []Total `json:"totals"`
		Lag    seconds `json:"lag"`
	}
	if err := json.Unmarshal(e.Data, &got); err != nil {
		return watched{err: &broken{w.c.base, err}}
	}
	return watched{Update: Update{Totals: got.Totals, Lag: got.Lag.d, LagKnown: got.Lag.known}}
}
