package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A day of a counter's series is one key. Days come first in the key, so that a fold of any number
// of counters walks one range, and a day goes with one range deletion.

// A seriesDay is the number of days since 1970 in UTC.
type seriesDay uint32

func dayOf(m wire.Minute) seriesDay { return seriesDay(m / store.DayMinutes) }

func (d seriesDay) first() wire.Minute { return wire.Minute(d) * store.DayMinutes }

// dayLen is the length of the prefix that all keys of a day share.
func (k keyspace) dayLen() int { return len(k.prefix) + 1 + 4 }

// day appends that prefix.
func (k keyspace) day(dst []byte, d seriesDay) []byte {
	return binary.BigEndian.AppendUint32(k.kind(dst, kindSeries), uint32(d))
}

func (k keyspace) seriesLen(counter string) int { return k.dayLen() + 8 + len(counter) }

// series appends the key of a counter's day.
func (k keyspace) series(dst []byte, d seriesDay, order uint64, counter string) []byte {
	dst = binary.BigEndian.AppendUint64(k.day(dst, d), order)
	return append(dst, counter...)
}

// seriesCounter returns the counter of a key.
func (k keyspace) seriesCounter(key []byte) (string, error) {
	if len(key) <= k.dayLen()+8 {
		return "", fmt.Errorf("a key of %d bytes for a series", len(key))
	}
	return string(key[k.dayLen()+8:]), nil
}

// mergeBuckets adds the buckets of a commit, in key order.
func (s *Store) mergeBuckets(b *pebbledb.Batch, c *store.Commit) error {
	buckets := c.Buckets
	if !oneDay(buckets) {
		buckets = slices.Clone(buckets)
		slices.SortStableFunc(buckets, func(x, y store.BucketDelta) int { return cmp.Compare(dayOf(x.Minute), dayOf(y.Minute)) })
	}
	var value []byte
	for i := 0; i < len(buckets); {
		first := &buckets[i]
		d, last := dayOf(first.Minute), wire.Minute(0)
		value = value[:0]
		for ; i < len(buckets) && buckets[i].Add == first.Add && dayOf(buckets[i].Minute) == d; i++ {
			slot := buckets[i].Minute - d.first()
			value = appendBucket(value, uint64(slot-last), fromInt64(buckets[i].Delta))
			last = slot
		}
		a := &c.Adds[first.Add]
		op := b.MergeDeferred(s.keys.seriesLen(a.Counter), len(value))
		s.keys.series(op.Key[:0], d, a.Order, a.Counter)
		copy(op.Value, value)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	return nil
}

func oneDay(buckets []store.BucketDelta) bool {
	for i := range buckets {
		if dayOf(buckets[i].Minute) != dayOf(buckets[0].Minute) {
			return false
		}
	}
	return true
}

// Series reads a key of each counter for each day on which any counter has a series.
func (v *view) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	s := v.store
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	if err := v.pin(ctx); err != nil {
		return nil, err
	}
	found := make([][]store.Bucket, len(of))
	if from = max(from, 0); from >= to {
		return found, nil
	}
	var key []byte // calls may run beside each other
	err := eachDay(v.snapshot, s.keys, dayOf(from), dayOf(to-1), func(d seriesDay) error {
		for i := range of {
			counter := of[i].Counter
			key = s.keys.series(key[:0], d, wire.Order(counter), counter)
			pairs, _, err := getSeries(v.snapshot, key)
			if err != nil {
				return fmt.Errorf("series of %q: %w", counter, err)
			}
			found[i] = append(found[i], bucketsOf(d, pairs, from, to)...)
		}
		return ctx.Err()
	})
	return found, err
}

// bucketsOf returns the buckets of a day that begin in a range, by their first minutes.
func bucketsOf(d seriesDay, pairs []slotSum, from, to wire.Minute) (buckets []store.Bucket) {
	for _, p := range pairs {
		b := store.Bucket{Minute: d.first() + p.slot.minute(), Quarter: p.slot.quarter()}
		if b.Minute < from || b.Minute >= to {
			continue
		}
		b.Sum = p.sum.exact()
		buckets = append(buckets, b)
	}
	slices.SortStableFunc(buckets, func(x, y store.Bucket) int { return cmp.Compare(x.Minute, y.Minute) })
	return buckets
}

// eachDay visits the days from first to last that have any series. Each costs one seek.
func eachDay(from pebbledb.Reader, keys keyspace, first, last seriesDay, visit func(seriesDay) error) error {
	iter, err := from.NewIter(&pebbledb.IterOptions{LowerBound: keys.day(nil, first), UpperBound: after(keys.day(nil, last))})
	if err != nil {
		return err
	}
	skip := len(keys.prefix) + 1
	for ok := iter.First(); ok && err == nil; {
		key := iter.Key()
		if len(key) < keys.dayLen() {
			err = fmt.Errorf("a key of %d bytes for a series", len(key))
			break
		}
		d := seriesDay(binary.BigEndian.Uint32(key[skip:]))
		if err = visit(d); err == nil {
			ok = iter.SeekGE(after(keys.day(nil, d)))
		}
	}
	return errors.Join(err, iter.Error(), iter.Close())
}

// getSeries returns the sums of a counter's day; none if it has none.
func getSeries(from pebbledb.Reader, key []byte) ([]slotSum, bool, error) {
	return get(from, key, decodeSeries)
}

// removeSeries removes the series of a counter.
func (s *Store) removeSeries(b *pebbledb.Batch, counter string) error {
	order := wire.Order(counter)
	return eachDay(s.db, s.keys, 0, lastDay, func(d seriesDay) error {
		key := s.keys.series(nil, d, order, counter)
		_, exists, err := getSeries(s.db, key)
		if err != nil || !exists {
			return err
		}
		return b.Delete(key, nil)
	})
}

const lastDay = seriesDay(1<<32 - 2)

// MoveSeries does nothing: this store has no ring.
func (s *Store) MoveSeries(ctx context.Context) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.closing.RUnlock()
	return 0, ctx.Err()
}
