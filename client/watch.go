package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/url"
	"slices"
	"time"
)

// A WatchEvent is an event of GET /v1/watch.
type WatchEvent struct {
	// All totals in the first event of a stream, and the changed ones in later events. Empty if only the rest of the event is new.
	Totals []Total `json:"totals"`
	// With `prefix`: counters that are watched no longer. They were deleted, are beyond `limit` now, or have totals that do not fit
	// 64 bits. Absent if there are none.
	Removed []string `json:"removed,omitempty" schema:"CounterName #1.."`
	// Present if more counters have the prefix than `limit`.
	Truncated bool     `json:"truncated,omitzero"`
	Lag       *float64 `json:"lag" schema:"Lag"`
	// Of all counters and aggregators together. Null until each aggregator has sent two heartbeats, and for a token that is limited
	// to prefixes.
	Pipeline *Rates `json:"pipeline"`
}

// Rates are those of all counters and aggregators together.
type Rates struct {
	EntriesPerSecond float64 `json:"entries_per_second" schema:"0.."`
	CommitsPerSecond float64 `json:"commits_per_second" schema:"0.."`
}

// An Update is the difference to the update before it. The first one has all totals.
type Update struct {
	// Totals are the totals that have changed. They are empty if only the rest has changed.
	Totals []Total
	// Removed are counters that WatchPrefix watches no longer: they were deleted, are beyond the
	// limit, or have totals that do not fit 64 bits.
	Removed []string
	// Overflowed are counters whose totals do not fit 64 bits. They are in no Totals.
	Overflowed []string
	// Truncated is true if more counters have the prefix than the limit allows.
	Truncated bool
	// Lag is the age of the oldest increment that an aggregator holds uncommitted. LagKnown is
	// false if no aggregator has reported one lately.
	Lag      time.Duration
	LagKnown bool
}

// Watch returns the totals of up to 100 counters, and then the totals that change. If the caller is
// slow, updates are merged: it gets the newest total of each counter that has changed. After a broken
// connection Watch connects again, WithTries times in a row, with pauses of up to 5 s, or of up to a minute if the server
// asks for them. Errors that a repeat cannot help end it. Temporary ones are yielded too, and the watch goes on if the caller does. It ends with ctx.
func (c *Client) Watch(ctx context.Context, counters []string, options ...ReadOption) iter.Seq2[Update, error] {
	return c.watch(ctx, url.Values{"counter": counters}, options)
}

// WatchPrefix is Watch for the counters whose names begin with prefix: the first 100 in byte order, or
// as many as WithLimit says. A new counter is there within 10 s. WithMaxStaleness is not allowed: the
// server reads the counters once a second for everybody who watches the prefix.
func (c *Client) WatchPrefix(ctx context.Context, prefix string, options ...ReadOption) iter.Seq2[Update, error] {
	return c.watch(ctx, url.Values{"prefix": {prefix}}, options)
}

func (c *Client) watch(ctx context.Context, query url.Values, options []ReadOption) iter.Seq2[Update, error] {
	for _, o := range options {
		o(query)
	}
	return func(yield func(Update, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w := &watch{c: c, query: query, updates: make(chan watched, 1), known: make(map[string]Total)}
		go w.run(ctx)
		defer func() { // run has ended when Watch returns
			cancel()
			for range w.updates {
			}
		}()
		for u := range w.updates {
			if u.news && !yield(u.Update, nil) || u.err != nil && !yield(Update{}, u.err) {
				return
			}
		}
	}
}

// A watched is an update, if there is news, and then an error.
type watched struct {
	Update
	news bool
	err  error
}

// and is u and a later one together. An error is out of date once there is news.
func (u watched) and(later watched) watched {
	if !later.news {
		u.err = later.err
		return u
	}
	if u.news {
		later.Update = u.Update.and(later.Update)
	}
	return later
}

// and is the update with the effect of u and a later one.
func (u Update) and(later Update) Update {
	newer := make(map[string]bool, len(later.Totals)+len(later.Removed))
	for _, t := range later.Totals {
		newer[t.Counter] = true
	}
	for _, name := range slices.Concat(later.Removed, later.Overflowed) {
		newer[name] = true
	}
	isNewer := func(name string) bool { return newer[name] }
	totals := slices.DeleteFunc(slices.Clone(u.Totals), func(t Total) bool { return newer[t.Counter] })
	removed := slices.DeleteFunc(slices.Clone(u.Removed), isNewer)
	later.Overflowed = append(slices.DeleteFunc(slices.Clone(u.Overflowed), isNewer), later.Overflowed...)
	later.Totals, later.Removed = append(totals, later.Totals...), append(removed, later.Removed...)
	return later
}

// A watch is the connection of one Watch. updates holds one update: put merges a later one into it.
type watch struct {
	c       *Client
	query   url.Values
	updates chan watched

	known map[string]Total // the newest total of each counter, over all connections; run alone uses it
	last  Update           // without totals
}

// news returns the difference that an event makes. The first event of a connection has all totals, and
// may change nothing.
func (w *watch) news(u Update, first bool) (Update, bool) {
	if first {
		u = w.sinceBreak(u)
	}
	for _, t := range u.Totals {
		w.known[t.Counter] = t
	}
	for _, name := range slices.Concat(u.Removed, u.Overflowed) {
		delete(w.known, name)
	}
	rest := Update{Truncated: u.Truncated, Lag: u.Lag, LagKnown: u.LagKnown}
	same := len(u.Totals)+len(u.Removed)+len(u.Overflowed) == 0 && len(w.known) > 0 &&
		rest.Truncated == w.last.Truncated && rest.Lag == w.last.Lag && rest.LagKnown == w.last.LagKnown
	w.last = rest
	return u, !same
}

// sinceBreak is the difference between all totals and the known ones.
func (w *watch) sinceBreak(u Update) Update {
	all, gone := u.Totals, maps.Clone(w.known)
	u.Totals = nil
	for _, name := range u.Overflowed {
		delete(gone, name)
	}
	for _, t := range all {
		old, known := gone[t.Counter]
		delete(gone, t.Counter)
		if !known || t.Total != old.Total || t.Exists != old.Exists || t.Shards != old.Shards || rateOf(t) != rateOf(old) {
			u.Totals = append(u.Totals, t)
		}
	}
	u.Removed = append(u.Removed, slices.Sorted(maps.Keys(gone))...)
	return u
}

// rateOf is a rate, or 0 if it is not known.
func rateOf(t Total) float64 {
	if t.Rate == nil {
		return 0
	}
	return *t.Rate
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
		if !again || try == w.c.tries || !pause(ctx, try, min(retryAfter(err), time.Minute), err, nil) {
			return
		}
	}
}

// put merges u into an update that nobody has taken yet. run alone calls it.
func (w *watch) put(u watched) {
	select {
	case old := <-w.updates:
		u = old.and(u)
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
		u := w.read(e)
		if u.err == nil {
			u.Update, u.news = w.news(u.Update, !heard)
			heard = true
		}
		if u.news || u.err != nil {
			w.put(u)
		}
	}
	return heard, context.Cause(ctx)
}

// read decodes an event. A problem is an error after which the server goes on.
func (w *watch) read(e Event) watched {
	if p := e.Problem(); p != nil {
		return watched{err: p}
	}
	var got WatchEvent
	if err := json.Unmarshal(e.Data, &got); err != nil {
		return watched{err: &broken{w.c.base, err}}
	}
	totals, overflowed := split(got.Totals)
	u := Update{Totals: totals, Removed: got.Removed, Overflowed: overflowed, Truncated: got.Truncated, LagKnown: got.Lag != nil}
	if u.LagKnown {
		u.Lag = time.Duration(*got.Lag * float64(time.Second))
	}
	return watched{Update: u}
}
