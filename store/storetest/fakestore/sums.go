package fakestore

import (
	"context"
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// Sums visits the counters of a query in the order of their names.
func (s *Store) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (sums store.Sums, err error) {
	var found []store.CounterSum
	err = s.run(ctx, Sums, func() error {
		sums = store.Sums{At: s.readTimeLocked(), Changes: s.changes}
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
	r, _ := s.records[counter].newest()
	remainder := r.remainder
	sum, exists := remainder.Sub(r.Baseline), remainder != int128.Int{}
	for n := range int(r.shards) {
		v, some := s.shards[shardKey{counter, n}].newest()
		sum, exists = sum.Add(v), exists || some
	}
	c.Sum, c.Overflow = inInt64(sum)
	hidden := !r.DeletedAt.IsZero() && c.Sum == 0 && !c.Overflow
	if q.To == 0 {
		return c, r.exists && exists && !hidden
	}
	sum = int128.Int{}
	for _, b := range s.seriesLocked(counter, q.From, q.To, s.last) {
		sum = sum.Add(b.Sum)
	}
	c.Sum, c.Overflow = inInt64(sum)
	return c, !hidden && sum != int128.Int{}
}

func inInt64(sum int128.Int) (n int64, overflow bool) {
	n, fits := sum.Int64()
	return n, !fits
}

// Changes counts the calls that change sums. Without Options.GrowsInFold others may change them too, as in Datastore.
func (s *Store) Changes() (n uint64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes, s.opts.GrowsInFold
}
