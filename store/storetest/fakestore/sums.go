package fakestore

import (
	"context"
	"math"
	"math/big"
	"slices"

	"github.com/countmill/countmill/store"
)

// Sums visits the counters of a query in the order of their names.
func (s *Store) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (sums store.Sums, err error) {
	var found []store.CounterSum
	err = s.run(ctx, Sums, func() error {
		sums = store.Sums{At: s.readTimeLocked(), Mark: s.rises.mark()}
		for counter := range s.records {
			if c, ok := s.sumLocked(counter, q); ok && q.Has(counter) {
				found = append(found, c)
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b store.CounterSum) int { return slices.Compare(a.Counter, b.Counter) })
	for i := range found {
		if sums.Read++; err == nil {
			err = visit(&found[i])
		}
	}
	return sums, err
}

func (s *Store) sumLocked(counter string, q *store.SumsQuery) (c store.CounterSum, ok bool) {
	c.Counter = []byte(counter)
	if q.To > 0 {
		buckets := s.seriesLocked(counter, q.From, q.To, s.last)
		for _, b := range slices.Backward(buckets) {
			c.Sum, c.Overflow = saturatingAdd(c.Sum, b.Sum), c.Overflow || b.Overflow
			c.Most = max(c.Most, c.Sum)
		}
		c.Overflow = c.Overflow || c.Sum == math.MaxInt64 || c.Sum == math.MinInt64
		total, _ := s.sumLocked(counter, &store.SumsQuery{Index: q.Index, Groups: q.Groups})
		r, _ := s.records[counter].newest()
		c.Hidden = !r.DeletedAt.IsZero() && total.Sum == 0 && !total.Overflow
		return c, c.Sum != 0 || c.Most != 0
	}
	r, _ := s.records[counter].newest()
	rest, overflow := r.rest.total()
	sum, exists := new(big.Int).Sub(big.NewInt(rest), big.NewInt(r.Baseline)), rest != 0
	c.Overflow = overflow
	for n := range int(r.shards) {
		v, some := s.shards[shardKey{counter, n}].newest()
		sum.Add(sum, big.NewInt(v))
		exists, c.Overflow = exists || some, c.Overflow || v == math.MaxInt64 || v == math.MinInt64
	}
	if c.Sum = sum.Int64(); !sum.IsInt64() {
		c.Overflow = true
	}
	c.Most = c.Sum
	return c, r.exists && exists && (r.DeletedAt.IsZero() || c.Sum != 0 || c.Overflow)
}

// rises bounds all that raised a sum.
type rises struct {
	most    int64 // at the largest int64 it bounds nothing
	changes uint64
}

func (r *rises) mark() store.RiseMark { return store.RiseMark{Lo: uint64(r.most), Changes: r.changes} }

// up notes a change that raises sums by at most that much.
func (r *rises) up(by int64) {
	r.most, r.changes = saturatingAdd(r.most, max(by, 0)), r.changes+1
}

// foldedLocked notes what a commit raises.
func (s *Store) foldedLocked(c *store.Commit) {
	buckets := make(map[int]int64)
	for _, b := range c.Buckets {
		buckets[b.Add] = saturatingAdd(buckets[b.Add], max(b.Delta, 0))
	}
	for i := range c.Adds {
		s.rises.up(max(c.Adds[i].Delta, buckets[i]))
	}
}

// Risen bounds the rises of all counters. Without Options.GrowsInFold it knows none, as Datastore.
func (s *Store) Risen(q *store.SumsQuery, since store.RiseMark) store.Rise {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opts.GrowsInFold {
		return store.Rise{Changed: true}
	}
	rise := store.Rise{Known: true, Most: s.rises.most - int64(since.Lo), Changed: s.rises.changes != since.Changes}
	if s.rises.most == math.MaxInt64 {
		rise.Most = math.MaxInt64
	}
	return rise
}
