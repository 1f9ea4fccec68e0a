package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Sums visits the sums in a snapshot. If few counters begin as those of the index, it looks each of
// them up. Otherwise it walks all shards of the database.
func (s *Store) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (sums store.Sums, err error) {
	v := s.View().(*view)
	defer v.Close()
	if err := s.enter(); err != nil {
		return sums, err
	}
	defer s.closing.RUnlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	sums.Changes = s.changes.Load() // a commit that the snapshot lacks is counted later
	if err := v.pin(ctx); err != nil {
		return sums, err
	}
	sums.At = v.at
	w := &sumWalk{view: v, q: q, visit: visit}
	switch {
	case q.To > 0:
		err = w.minutes(ctx)
	case q.Groups:
		err = w.lookUp(ctx)
	default:
		err = w.totals(ctx)
	}
	sums.Read = w.read
	return sums, err
}

// Changes counts commits of this process, which has the directory alone.
func (s *Store) Changes() (n uint64, known bool) { return s.changes.Load(), true }

// commitSums commits and syncs b, which may change sums.
func (s *Store) commitSums(b *pebbledb.Batch) error {
	err := s.commit(b)
	s.changes.Add(1) // when a look that begins now has the sums
	return err
}

// A sumWalk is one look at all sums.
type sumWalk struct {
	view  *view
	q     *store.SumsQuery
	visit func(*store.CounterSum) error
	read  int64
	found store.CounterSum
}

// emit visits a counter.
func (w *sumWalk) emit(counter []byte, sum int128) error {
	n, overflow := sum.total()
	w.found = store.CounterSum{Counter: counter, Sum: n, Overflow: overflow}
	return w.visit(&w.found)
}

// count counts a key, and looks now and then whether the caller still waits.
func (w *sumWalk) count(ctx context.Context) error {
	if w.read++; w.read%1000 == 0 {
		return ctx.Err()
	}
	return nil
}

// prefixes are the texts with which the names begin.
func prefixes(q *store.SumsQuery) []string {
	if q.Groups {
		return q.Index.GroupPrefixes()
	}
	return []string{q.Index.Prefix()}
}

// records visits the records of counters of the query, until visit wants no more.
func (w *sumWalk) records(ctx context.Context, visit func(name string, r record) (more bool, err error)) error {
	v := w.view
	for _, prefix := range prefixes(w.q) {
		err := scan(v.snapshot, v.store.keys, kindRecord, prefix, "", func(name string, value []byte) (bool, error) {
			if err := w.count(ctx); err != nil || !w.q.Has(name) {
				return true, err
			}
			r, err := decodeRecord(value)
			if err != nil {
				return false, fmt.Errorf("record of %q: %w", name, err)
			}
			return visit(name, r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lookUp looks up the shards of each record.
func (w *sumWalk) lookUp(ctx context.Context) error {
	v := w.view
	return w.records(ctx, func(name string, r record) (bool, error) {
		sum, exists := fromExact(r.Baseline).negative(), false
		for n := range r.shards {
			v.key = v.store.keys.shard(v.key[:0], wire.Order(name), name, n)
			count, some, err := get(v.snapshot, v.key, countOf)
			if err != nil {
				return false, fmt.Errorf("shard %d of %q: %w", n, name, err)
			}
			sum, exists = sum.plus(count), exists || some
		}
		if w.q.Groups {
			v.key = v.store.keys.named(v.key[:0], kindRemainder, name)
			remainder, some, err := getSum(v.snapshot, v.key)
			if err != nil {
				return false, fmt.Errorf("remainder of %q: %w", name, err)
			}
			sum, exists = sum.plus(remainder), exists || some
		}
		if !exists || !r.DeletedAt.IsZero() && sum == (int128{}) {
			return true, nil
		}
		return true, w.emit([]byte(name), sum)
	})
}

// A special is a record that a walk over shards needs: that of a counter that was reset, or that has not
// one shard. The name is a hash with a seed, because names of 500 bytes would take too much memory.
type special struct {
	order, name uint64
	baseline    int128
	shards      int
	deleted     bool
}

// specials returns them in the order of shards, or few if only few counters have records.
func (w *sumWalk) specials(ctx context.Context, seed maphash.Seed) (all []special, few bool, err error) {
	n := 0
	err = w.records(ctx, func(name string, r record) (bool, error) {
		n++
		if r.shards != 1 || r.wasReset {
			all = append(all, special{wire.Order(name), maphash.String(seed, name), fromExact(r.Baseline), r.shards, !r.DeletedAt.IsZero()})
		}
		return true, nil
	})
	slices.SortFunc(all, func(a, b special) int { return cmp.Compare(a.order, b.order) })
	return all, n <= w.view.store.cfg.looked, err
}

// totals walks over all shards, and over the special records beside them.
func (w *sumWalk) totals(ctx context.Context) error {
	seed := maphash.MakeSeed()
	specials, few, err := w.specials(ctx, seed)
	if err != nil {
		return err
	}
	if few {
		return w.lookUp(ctx)
	}
	at := current{walk: w, seed: seed, specials: specials}
	s := w.view.store
	prefix, skip := w.q.Index.Prefix(), len(s.keys.prefix)+1
	err = s.each(ctx, w.view.snapshot, s.keys.kind(nil, kindShard), nil, func(key, value []byte) (bool, error) {
		w.read++
		const order, number = 8, 2
		if key = key[skip:]; len(key) <= order+number {
			return true, nil
		}
		place, name := binary.BigEndian.Uint64(key), key[order:len(key)-number]
		if !strings.HasPrefix(string(name), prefix) {
			return true, nil
		}
		if place != at.place || string(name) != string(at.name) {
			if err := at.done(); err != nil {
				return false, err
			}
			at.begin(place, name)
		}
		return true, at.add(int(binary.BigEndian.Uint16(key[len(key)-number:])), value)
	})
	if err != nil {
		return err
	}
	return at.done()
}

// current is the counter whose shards a walk visits.
type current struct {
	walk     *sumWalk
	seed     maphash.Seed
	specials []special // those of this place and later ones

	place  uint64
	name   []byte // empty for none
	record special
	sum    int128
}

// begin begins a counter, or none if the query does not have it, or no look-up finds shards at this place.
func (c *current) begin(order uint64, name []byte) {
	c.place, c.name = order, c.name[:0]
	if !c.walk.q.Index.Has(string(name)) || wire.Order(string(name)) != order {
		return
	}
	c.name, c.sum = append(c.name, name...), int128{}
	c.record = special{shards: 1}
	for len(c.specials) > 0 && c.specials[0].order < order {
		c.specials = c.specials[1:]
	}
	for i := range c.specials {
		s := &c.specials[i]
		if s.order != order {
			break
		}
		if s.name == maphash.Bytes(c.seed, name) {
			c.record = *s
		}
	}
}

// add leaves out shards that the record does not name, as readers do.
func (c *current) add(shard int, value []byte) error {
	if len(c.name) == 0 || shard >= c.record.shards {
		return nil
	}
	count, err := countOf(value)
	if err != nil {
		return fmt.Errorf("shard %d of %q: %w", shard, c.name, err)
	}
	c.sum = c.sum.plus(count)
	return nil
}

// done visits the counter.
func (c *current) done() error {
	total := c.sum.plus(c.record.baseline.negative())
	if len(c.name) == 0 || c.record.deleted && total == (int128{}) {
		return nil
	}
	return c.walk.emit(c.name, total)
}
