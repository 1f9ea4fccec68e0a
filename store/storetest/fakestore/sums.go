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
	remainder, overflow := r.remainder.total()
	sum, exists := new(big.Int).Sub(big.NewInt(remainder), big.NewInt(r.Baseline)), remainder != 0
	c.Overflow = overflow
	for n := range int(r.shards) {
		v, some := s.shards[shardKey{counter, n}].newest()
		sum.Add(sum, big.NewInt(v))
		exists, c.Overflow = exists || some, c.Overflow || v == math.MaxInt64 || v == math.MinInt64
	}
	if c.Sum = sum.Int64(); !sum.IsInt64() {
		c.Overflow = true
	}
	hidden := !r.DeletedAt.IsZero() && c.Sum == 0 && !c.Overflow
	if q.To == 0 {
		return c, r.exists && exists && !hidden
	}
	c.Sum, c.Overflow = 0, false
	for _, b := range s.seriesLocked(counter, q.From, q.To, s.last) {
		c.Sum, c.Overflow = saturatingAdd(c.Sum, b.Sum), c.Overflow || b.Overflow
	}
	c.Overflow = c.Overflow || c.Sum == math.MaxInt64 || c.Sum == math.MinInt64
	return c, !hidden && (c.Sum != 0 || c.Overflow)
}

// Changes counts the calls that change sums. Without Options.GrowsInFold others may change them too, as in Datastore.
func (s *Store) Changes() (n uint64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes, s.opts.GrowsInFold
}
