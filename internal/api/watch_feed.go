package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
)

const (
	// maxPrefixLimit is the most counters of a watcher with a prefix.
	maxPrefixLimit = 1000

	// prefixInterval is how often the counters of a prefix are read, and listEvery how often
	// their names are.
	prefixInterval = time.Second
	listEvery      = 10 * time.Second
)

// An order is the request of a watcher, checked.
type order struct {
	key      string // watchers with the same key share a feed; empty: nobody shares it
	limit    int    // most counters
	interval time.Duration
	source   source
	caller   string // of the watcher
}

// A source reads counters. Its feed alone calls it, one call at a time.
type source interface {
	// read returns the totals of up to limit counters.
	read(ctx context.Context, limit int) (reading, error)
}

// feeds are the feeds of the watchers that there are. They end with their last watchers.
type feeds struct {
	mu     sync.Mutex
	shared map[string]*feed // by key
}

// A feed reads counters once an interval for all its watchers. It never waits for a watcher.
type feed struct {
	a        *API
	key      string
	source   source
	interval time.Duration
	owner    string // the first watcher's caller: the counters are of its share, and reads take its turns
	cancel   context.CancelFunc
	done     chan struct{} // closed when run has ended
	limits   map[int]int   // how many watchers have each limit; protected by feeds.mu

	mu       sync.Mutex
	snapshot *snapshot     // the last one; nil before the first read
	renewed  chan struct{} // closed with the next snapshot
}

// join returns the feed of an order, with one watcher more. The watcher has to leave it.
func (fs *feeds) join(a *API, o order) (*feed, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.shared[o.key]
	if f == nil || f.owner != o.caller && o.limit > f.mostLocked() { // a caller who wants more counters pays with its own share
		f = &feed{
			a: a, key: o.key, source: o.source, interval: o.interval, owner: o.caller,
			limits: make(map[int]int), renewed: make(chan struct{}), done: make(chan struct{}),
		}
	}
	if _, err := a.pools.take(watched, f.owner, max(o.limit-f.mostLocked(), 0)); err != nil {
		return nil, err
	}
	f.limits[o.limit]++
	if f.cancel == nil {
		var ctx context.Context
		ctx, f.cancel = context.WithCancel(reader.WithCaller(a.closing, f.owner))
		if f.key != "" {
			fs.shared[f.key] = f
		}
		go f.run(ctx) // the last leave waits for it
	}
	return f, nil
}

// leave takes away a watcher with that limit. The last one ends the feed and waits for its end.
func (f *feed) leave(limit int) {
	fs := &f.a.feeds
	fs.mu.Lock()
	before := f.mostLocked()
	if f.limits[limit]--; f.limits[limit] == 0 {
		delete(f.limits, limit)
	}
	f.a.pools[watched].Give(f.owner, before-f.mostLocked())
	last := len(f.limits) == 0
	if last && fs.shared[f.key] == f { // and no larger one
		delete(fs.shared, f.key)
	}
	fs.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
}

// mostLocked is the largest limit of the watchers, under feeds.mu.
func (f *feed) mostLocked() int {
	most := 0
	for limit := range f.limits {
		most = max(most, limit)
	}
	return most
}

func (f *feed) most() int {
	f.a.feeds.mu.Lock()
	defer f.a.feeds.mu.Unlock()
	return f.mostLocked()
}

// run reads until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for b := new(snapshot); ; {
		if b = f.read(ctx, b); ctx.Err() != nil {
			return
		}
		f.publish(b)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read takes at most half of KeepAlive, so that problems show before a silence does.
func (f *feed) read(ctx context.Context, last *snapshot) *snapshot {
	ctx, cancel := context.WithTimeout(ctx, min(f.a.cfg.Timeout, f.a.cfg.KeepAlive/2))
	defer cancel()
	limit := f.most()
	r, err := f.source.read(ctx, limit)
	if err != nil {
		return last.failed(err)
	}
	return last.next(r, limit, f.a.services.Reader.Pipeline(ctx))
}

func (f *feed) publish(b *snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshot = b
	close(f.renewed)
	f.renewed = make(chan struct{})
}

// look returns the last snapshot, and a channel that is closed with the next one.
func (f *feed) look() (*snapshot, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snapshot, f.renewed
}

// first waits for a snapshot with as many counters as a new watcher wants, or with an error.
func (f *feed) first(ctx context.Context, limit int) (*snapshot, error) {
	for {
		b, renewed := f.look()
		if b != nil && (b.err != nil || b.limit >= limit) {
			return b, nil
		}
		select {
		case <-renewed:
		case <-ctx.Done():
			if f.a.closing.Err() != nil {
				return nil, errClosing
			}
			return nil, ctx.Err()
		}
	}
}

// A namedSource reads counters that were asked for by name.
type namedSource struct {
	reader       Reader
	counters     []string
	maxStaleness time.Duration // below 0: the reader's default first, and then half the interval
	minAsOf      time.Time     // zero: any
	interval     time.Duration
	begun        bool
}

func (s *namedSource) read(ctx context.Context, _ int) (reading, error) {
	accepted := s.maxStaleness
	if accepted < 0 && s.begun { // let watchers of the same counters share reads
		accepted = s.interval / 2
	}
	ts, err := s.reader.TotalsSince(ctx, s.counters, accepted, s.minAsOf)
	if withoutTotals(err) {
		return reading{}, err
	}
	first := !s.begun
	s.begun = true
	return reading{totals: ts, listed: first}, nil
}

// A prefixSource reads the counters of a prefix. Every ten seconds it lists them, which gives
// their totals too. In between it reads the totals of the names that it has.
type prefixSource struct {
	reader Reader
	ranges []string // prefixes in byte order without overlap

	names  []string
	limit  int       // of the last list
	listed time.Time // when it began; zero: list now
}

func (s *prefixSource) read(ctx context.Context, limit int) (reading, error) {
	// A ticker is early or late by a little: half a beat decides.
	if s.listed.IsZero() || limit > s.limit || time.Since(s.listed) > listEvery-prefixInterval/2 {
		return s.list(ctx, limit)
	}
	if len(s.names) == 0 {
		return reading{}, nil
	}
	// A total of another reader will do, if it is younger than the one before.
	ts, err := s.reader.TotalsSince(ctx, s.names, prefixInterval/2, time.Time{})
	_, ended := errors.AsType[*reader.NotServingError](err)
	if ended || errors.Is(err, countmill.ErrOverflow) {
		return s.list(ctx, limit) // which leaves that counter out
	}
	return reading{totals: ts}, err
}

// list reads the first counters of the ranges.
func (s *prefixSource) list(ctx context.Context, limit int) (reading, error) {
	began := time.Now()
	r := reading{listed: true}
	for _, prefix := range s.ranges {
		if err := s.listRange(ctx, prefix, limit, &r); err != nil {
			s.listed = time.Time{}
			return reading{}, err
		}
	}
	s.names = make([]string, len(r.totals))
	for i, t := range r.totals {
		s.names[i] = t.Counter
	}
	s.limit, s.listed = limit, began
	return r, nil
}

// listRange adds the counters of one range until there are limit, and notes whether there are
// more. Pages may be shorter than they were asked for, and empty where many counters were deleted: then larger ones
// pass those.
func (s *prefixSource) listRange(ctx context.Context, prefix string, limit int, r *reading) error {
	ask := 1
	for after := ""; !r.more; {
		left := limit - len(r.totals)
		ask = max(ask, left)
		p, err := s.reader.ListSince(ctx, prefix, after, ask, time.Time{})
		if err != nil {
			return err
		}
		if left == 0 { // one counter of a further range is enough to know
			r.more = len(p.Totals) > 0
		} else {
			r.totals = append(r.totals, p.Totals[:min(left, len(p.Totals))]...)
			r.more = len(r.totals) == limit && (p.Next != "" || len(p.Totals) > left)
		}
		if after = p.Next; after == "" {
			return nil
		}
		if len(p.Totals) == 0 {
			ask = min(2*ask, reader.MaxPage)
		} else {
			ask = 1
		}
	}
	return nil
}
