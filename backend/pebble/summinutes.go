package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// minutes walks over the days of the window side by side. Each day has its counters in the same order.
func (w *sumWalk) minutes(ctx context.Context) (err error) {
	v, from, to := w.view, max(w.q.From, 0), w.q.To
	if from >= to {
		return nil
	}
	m := &dayMerge{q: w.q}
	defer func() { err = errors.Join(err, m.close()) }()
	hidden, seed := make(map[uint64]struct{}), maphash.MakeSeed()
	if err := w.hidden(ctx, func(name string) { hidden[maphash.String(seed, name)] = struct{}{} }); err != nil {
		return err
	}
	keys := v.store.keys
	err = eachDay(v.snapshot, keys, dayOf(from), dayOf(to-1), func(d seriesDay) error {
		begin := keys.day(nil, d)
		iter, err := v.snapshot.NewIter(&pebbledb.IterOptions{LowerBound: begin, UpperBound: after(begin)})
		if err == nil {
			m.days = append(m.days, &walkedDay{day: d, iter: iter, skip: len(begin)})
			err = m.days[len(m.days)-1].move(iter.First())
		}
		return err
	})
	for err == nil && m.next() {
		if err = w.count(ctx); err != nil || !m.matches() {
			continue
		}
		if _, gone := hidden[maphash.Bytes(seed, m.name())]; gone {
			continue
		}
		if err = m.sum(); err == nil && (m.overflow || m.total != int128{}) {
			err = w.emit(m.name(), m.total)
		}
	}
	return errors.Join(err, m.err)
}

// hidden visits the counters of the query that were deleted and have counted nothing since.
func (w *sumWalk) hidden(ctx context.Context, visit func(name string)) error {
	v, keys := w.view, w.view.store.keys
	for _, prefix := range prefixes(w.q) {
		err := scan(v.snapshot, keys, kindGone, prefix, "", func(name string, _ []byte) (bool, error) {
			if err := w.count(ctx); err != nil {
				return false, err
			}
			r, _, err := getRecord(v.snapshot, keys.named(nil, kindRecord, name))
			if err != nil || r.DeletedAt.IsZero() {
				return true, err
			}
			sum := fromExact(r.Baseline).negative()
			for n := range r.shards {
				count, _, err := get(v.snapshot, keys.shard(nil, wire.Order(name), name, n), countOf)
				if err != nil {
					return false, err
				}
				sum = sum.plus(count)
			}
			if sum == (int128{}) {
				visit(name)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A walkedDay is the place of a walk in one day.
type walkedDay struct {
	day  seriesDay
	iter *pebbledb.Iterator
	skip int
	key  []byte // order and name; nil at the end
}

func (d *walkedDay) move(ok bool) error {
	if d.key = nil; ok {
		d.key = d.iter.Key()[d.skip:]
	}
	return d.iter.Error()
}

// A dayMerge visits the counters of several days.
type dayMerge struct {
	q    *store.SumsQuery
	days []*walkedDay // in the order of time
	key  []byte       // order and name of the counter
	err  error

	pairs    []slotSum
	total    int128
	overflow bool
}

func (m *dayMerge) close() (err error) {
	for _, d := range m.days {
		err = errors.Join(err, d.iter.Close())
	}
	return err
}

// next moves all days past the counter, and finds the next one.
func (m *dayMerge) next() bool {
	var least []byte
	for _, d := range m.days {
		if m.key != nil && d.key != nil && bytes.Equal(d.key, m.key) {
			if m.err = errors.Join(m.err, d.move(d.iter.Next())); m.err != nil {
				return false
			}
		}
		if d.key != nil && (least == nil || bytes.Compare(d.key, least) < 0) {
			least = d.key
		}
	}
	if least == nil {
		return false
	}
	m.key = append(m.key[:0], least...)
	return true
}

// matches skips keys of another form: no counter has them.
func (m *dayMerge) matches() bool {
	const order = 8
	if len(m.key) <= order {
		return false
	}
	name := m.key[order:]
	return slices.ContainsFunc(prefixes(m.q), func(p string) bool { return strings.HasPrefix(string(name), p) }) && m.q.Has(string(name))
}

func (m *dayMerge) name() []byte { return m.key[8:] }

// sum sums the buckets of the counter that begin in the window.
func (m *dayMerge) sum() error {
	m.total = int128{}
	for _, d := range m.days {
		if d.key == nil || !bytes.Equal(d.key, m.key) {
			continue
		}
		value, err := d.iter.ValueAndErr()
		if err == nil {
			m.pairs, err = appendSeries(m.pairs[:0], value)
		}
		if err != nil {
			return fmt.Errorf("series of %q: %w", m.name(), err)
		}
		for _, p := range m.pairs {
			if at := d.day.first() + p.slot.minute(); at >= m.q.From && at < m.q.To {
				m.total = m.total.plus(p.sum)
			}
		}
	}
	return nil
}
