package protocol

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// sumsPage is the most rows of one page of a look at all sums, if it has a rate, and of one look-up of days.
const sumsPage = 500

// Sums looks at all sums of the query at one moment. In the order of names it reads records and shards side by side, and looks
// up the days of the counters for a window. Otherwise see boardwalk.go.
func (s *Store) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (sums store.Sums, err error) {
	sums.Changes = s.changes.Load() // a commit that the view lacks is counted later
	v := s.view()
	defer v.Close()
	if _, err := v.Get(ctx, nil); err != nil {
		return sums, err
	}
	sums.At = v.At()
	w := &sumWalk{view: v, q: q, visit: visit, began: time.Now(), page: sumsPage}
	if q.Rate > 0 {
		w.page = max(1, min(sumsPage, int(q.Rate)))
	}
	if s.facts.byName {
		for _, prefix := range w.prefixes() {
			if err = w.run(ctx, prefix); err != nil {
				break
			}
		}
	} else {
		err = w.walk(ctx)
	}
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
	began   time.Time
	page    int
	read    int64
	waiting []windowed
	found   store.CounterSum
}

// prefixes are the texts with which the names begin.
func (w *sumWalk) prefixes() []string {
	if w.q.Groups {
		return w.q.Index.GroupPrefixes()
	}
	return []string{w.q.Index.Prefix()}
}

// A windowed is a counter and its sum in the window of a query.
type windowed struct {
	counter string
	sum     engine.Int
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
	return pause(ctx, time.Until(w.began.Add(time.Duration(float64(w.read)/w.q.Rate*float64(time.Second)))))
}

// run joins the records and the shards of a prefix. Shards without a record are of no counter.
func (w *sumWalk) run(ctx context.Context, prefix string) error {
	fields := []engine.FieldID{fieldCount}
	if w.q.To > 0 && w.store.facts.ring {
		fields = []engine.FieldID{engine.All}
	}
	records := w.Scan(ctx, engine.Range{Kind: kindRecord, Prefix: prefix, Page: w.page}, recordFields...)
	defer records.Close()
	shards := w.Scan(ctx, engine.Range{Kind: kindShard, ByName: true, Prefix: prefix, Page: w.page}, fields...)
	defer shards.Close()
	var shard *engine.Row
	begun := false
	for record := records.Next(); record != nil; record = records.Next() {
		value, err := valueOf(&record.Key, record)
		if err != nil {
			return err
		}
		sum, exists := value.Remainder.Sub(value.Reset.Baseline), value.Remainder != engine.Int{}
		var c windowed
		read := 1
		if !begun { // without records there is nothing to read
			shard, begun = shards.Next(), true
		}
		for ; shard != nil && shard.Key.Name <= record.Key.Name; shard = shards.Next() {
			read++
			if shard.Key.Name < record.Key.Name || !w.store.lookedUp(shard.Key) {
				continue
			}
			count, err := valueOf(&shard.Key, shard)
			if err != nil {
				return err
			}
			if c.sum = c.sum.Add(sumOf(shard, w.q.From, w.q.To)); int(shard.Key.Part) < value.Shards {
				sum, exists = sum.Add(count.Count), true
			}
		}
		if err := shards.Err(); err != nil {
			return err
		}
		if err := w.counter(ctx, record, &c, sum, exists); err != nil {
			return err
		}
		if err := w.took(ctx, read); err != nil {
			return err
		}
	}
	if err := records.Err(); err != nil {
		return err
	}
	return w.flush(ctx)
}

// counter visits a counter of the query, or lets it wait for its days.
func (w *sumWalk) counter(ctx context.Context, record *engine.Row, c *windowed, sum engine.Int, exists bool) error {
	deleted := record.Int64(fieldDeletedAt) != 0 && sum == engine.Int{}
	if !w.q.Has(record.Key.Name) || deleted || !exists && w.q.To == 0 {
		return nil
	}
	if w.q.To == 0 {
		return w.emit(record.Key.Name, sum)
	}
	c.counter = strings.Clone(record.Key.Name)
	if w.waiting = append(w.waiting, *c); len(w.waiting) < w.page {
		return nil
	}
	return w.flush(ctx)
}

// emit visits a counter.
func (w *sumWalk) emit(counter string, sum engine.Int) error {
	n, fits := sum.Int64()
	w.found.Counter, w.found.Sum, w.found.Overflow = append(w.found.Counter[:0], counter...), n, !fits
	return w.visit(&w.found)
}

// flush looks up the days of the waiting counters, and visits them. Nobody knows which days exist.
func (w *sumWalk) flush(ctx context.Context) error {
	if len(w.waiting) == 0 {
		return nil
	}
	first, last := dayOf(max(w.q.From, 0)), w.lastDay(w.q.To)
	counters := make([]string, len(w.waiting))
	for i := range w.waiting {
		counters[i] = w.waiting[i].counter
	}
	days, err := w.dayKeys(ctx, counters, first, last)
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
			c.sum = c.sum.Add(sumOf(r, w.q.From, w.q.To))
		})
		if err != nil {
			return err
		}
		if err := w.took(ctx, n); err != nil {
			return err
		}
		keys, whose = keys[n:], whose[n:]
	}
	for i := range w.waiting {
		if c := &w.waiting[i]; c.sum != (engine.Int{}) {
			if err := w.emit(c.counter, c.sum); err != nil {
				return err
			}
		}
	}
	w.waiting = w.waiting[:0]
	return nil
}
