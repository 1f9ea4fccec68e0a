package datastore

import (
	"context"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/wire"
)

const (
	// daysPage is the most days of the archive that one call reads. A day has 96 quarter hours, 2 KB, and
	// before its minutes are joined up to 1,440 of them, 32 KB.
	daysPage = 100

	// archiveAhead is how far a bucket may lie ahead of the service's clock, at most: store.SeriesAhead, and what
	// the clock of a fold may be wrong. It costs a look-up only in the last minutes of a day.
	archiveAhead = store.SeriesAhead + 10*time.Minute
)

// A windowScan sums the minutes of a query for counters whose rings come one after another. It holds counters
// until it knows enough days of theirs for a call, so its memory does not grow with the index.
type windowScan struct {
	store *Store
	paced *paced
	when  *timestamppb.Timestamp
	q     *store.SumsQuery
	visit func(*store.CounterSum) error

	first, last seriesDay // of the window; none if last is before first
	waiting     []*windowed
	days        map[ref]*windowed // those of the waiting counters
}

// A windowed is a counter and its sum in a window.
type windowed struct {
	counter string
	sums    *slotSums
}

func (s *Store) newWindowScan(p *paced, when *timestamppb.Timestamp, q *store.SumsQuery, visit func(*store.CounterSum) error) *windowScan {
	from, to := max(q.From, 0), min(q.To, wire.MinuteOf(when.AsTime().Add(archiveAhead)))
	return &windowScan{
		store: s, paced: p, when: when, q: q, visit: visit,
		first: dayOf(from), last: dayOf(max(to-1, 0)), days: make(map[ref]*windowed),
	}
}

func (w *windowScan) counter(name string) *windowed {
	return &windowed{counter: name, sums: newSlotSums(w.q.From, w.q.To)}
}

// add takes a counter whose rings are gathered.
func (w *windowScan) add(ctx context.Context, c *windowed) error {
	w.hold(c)
	if !w.full() {
		return nil
	}
	return w.flush(ctx)
}

func (w *windowScan) hold(c *windowed) {
	w.waiting = append(w.waiting, c)
	for d := w.first; d <= w.last; d++ {
		w.days[archiveRef(c.counter, d)] = c
	}
}

// full reports whether the days of one more counter would need a call more.
func (w *windowScan) full() bool {
	each := max(int(w.last-w.first)+1, 0)
	return len(w.waiting) >= w.page() || len(w.days)+each > w.page()
}

// page is how many days one call reads.
func (w *windowScan) page() int { return min(daysPage, w.paced.page()) }

// flush looks up the days of the waiting counters in the archive, and visits them. Nobody knows which days exist,
// and each is a read, also where there is none.
func (w *windowScan) flush(ctx context.Context) error {
	refs := make([]ref, 0, len(w.days))
	for r := range w.days {
		refs = append(refs, r)
	}
	for lot := range slices.Chunk(refs, w.page()) {
		for len(lot) > 0 {
			deferred, err := w.look(ctx, lot)
			if err != nil {
				return err
			}
			lot = deferred
		}
	}
	for _, c := range w.waiting {
		if sum, some := c.sum(); some {
			if err := w.visit(&sum); err != nil {
				return err
			}
		}
	}
	w.waiting = w.waiting[:0]
	clear(w.days)
	return nil
}

// look adds days to the sums of their counters, and returns those for which the service asks to come again.
func (w *windowScan) look(ctx context.Context, refs []ref) (deferred []ref, err error) {
	call, cancel, err := w.store.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	found, deferred, _, err := w.store.lookup(call, at(w.when), refs)
	if err != nil {
		return nil, err
	}
	for r, e := range found {
		if err := w.days[r].gather(e); err != nil {
			return nil, err
		}
	}
	return deferred, w.paced.took(ctx, len(refs)-len(deferred))
}

func (c *windowed) gather(e *pb.Entity) error { return c.sums.gather(e) }

// sum is that of the window; some is false if the counter has no bucket there.
func (c *windowed) sum() (sum store.CounterSum, some bool) {
	sum = store.CounterSum{Counter: []byte(c.counter)}
	total := int128.Int{}
	for _, b := range c.sums.buckets() {
		total = total.Add(b.Sum)
	}
	n, fits := total.Int64()
	sum.Sum, sum.Overflow = n, !fits
	return sum, sum.Overflow || sum.Sum != 0
}
