package protocol

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// sumsPage is the most rows of one page of a look at all sums, if it has a rate, and of one look-up of days.
const sumsPage = 500

// Sums looks at all sums of the query at one moment.
func (s *Store) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (sums store.Sums, err error) {
	sums.Changes = s.changes.Load() // a commit that the view lacks is counted later
	v := s.view()
	defer v.Close()
	if _, err := v.Get(ctx, nil); err != nil {
		return sums, err
	}
	sums.At = v.At()
	w := &sumWalk{view: v, q: q, visit: visit, seed: maphash.MakeSeed(), began: time.Now(), page: sumsPage}
	if q.Rate > 0 {
		w.page = max(1, min(sumsPage, int(q.Rate)))
	}
	err = w.walk(ctx)
	sums.Read = w.read
	return sums, err
}

// Changes counts calls of this process.
func (s *Store) Changes() (n uint64, known bool) {
	if !s.facts.certain {
		return 0, false
	}
	return s.changes.Load(), true
}

// A sumWalk is one look at all sums.
type sumWalk struct {
	*view
	q       *store.SumsQuery
	visit   func(*store.CounterSum) error
	seed    maphash.Seed
	began   time.Time
	page    int
	read    int64
	waiting []counted
	found   store.CounterSum
}

// prefixes are the texts with which the names begin.
func (w *sumWalk) prefixes() []string {
	if w.q.Groups {
		return w.q.Index.GroupPrefixes()
	}
	return []string{w.q.Index.Prefix()}
}

// took counts rows, and waits until so many were due.
func (w *sumWalk) took(ctx context.Context, n int) error {
	before := w.read / int64(w.page)
	if w.read += int64(n); w.read/int64(w.page) == before {
		return nil
	}
	if w.q.Rate == 0 {
		return ctx.Err()
	}
	clock.Sleep(ctx, time.Until(w.began.Add(time.Duration(float64(w.read)/w.q.Rate*float64(time.Second)))))
	return ctx.Err()
}

// emit visits a counter.
func (w *sumWalk) emit(counter string, sum engine.Int) error {
	n, fits := sum.Int64()
	w.found.Counter, w.found.Sum, w.found.Overflow = append(w.found.Counter[:0], counter...), n, !fits
	return w.visit(&w.found)
}

// flush looks up the days of the waiting counters, and visits them. Nobody knows which days exist.
func (w *sumWalk) flush(ctx context.Context) error {
	counters := make([]string, len(w.waiting))
	for i := range w.waiting {
		counters[i] = w.waiting[i].name
	}
	days, err := w.dayKeys(ctx, counters, dayOf(max(w.q.From, 0)), w.lastDay(w.q.To))
	if err != nil {
		return err
	}
	var keys []engine.Key
	var whose []int
	for i := range w.waiting {
		keys = append(keys, days[i]...)
		whose = append(whose, slices.Repeat([]int{i}, len(days[i]))...)
	}
	for len(keys) > 0 {
		n := min(w.page, len(keys))
		err := w.store.each(ctx, w, keys[:n], []engine.FieldID{engine.All}, func(i int, r *engine.Row) {
			c := &w.waiting[whose[i]]
			c.window = c.window.Add(sumOf(r, w.q.From, w.q.To))
		})
		if err == nil {
			err = w.took(ctx, n)
		}
		if err != nil {
			return err
		}
		keys, whose = keys[n:], whose[n:]
	}
	for i := range w.waiting {
		if c := &w.waiting[i]; c.window != (engine.Int{}) {
			if err := w.emit(c.name, c.window); err != nil {
				return err
			}
		}
	}
	w.waiting = w.waiting[:0]
	return nil
}
