package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

type sumsFunc func(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error)

// summing has other sums, or counts no changes of them.
type summing struct {
	*fakestore.Store
	sums  sumsFunc
	still bool
}

func boards(odd summing) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store {
		odd := odd
		odd.Store = s
		return odd
	}
}

func (s summing) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	if s.sums == nil {
		return s.Store.Sums(ctx, q, visit)
	}
	return s.sums(ctx, s.Store, q, visit)
}

func (s summing) Changes() (n uint64, known bool) {
	if n, known = s.Store.Changes(); s.still {
		n = 0
	}
	return n, known
}

// spoils returns sums that change has spoiled; those for which it reports false are missing.
func spoils(change func(q *store.SumsQuery, c *store.CounterSum) bool) sumsFunc {
	return func(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
		return s.Sums(ctx, q, func(c *store.CounterSum) error {
			if !change(q, c) {
				return nil
			}
			return visit(c)
		})
	}
}

func positiveOnly(_ *store.SumsQuery, c *store.CounterSum) bool { return c.Sum >= 0 }

func withoutOverflowGroup(q *store.SumsQuery, c *store.CounterSum) bool {
	return string(c.Counter) != q.Index.Overflow()
}

// overflowTwice visits the overflow group once more where its name begins as those of all groups.
func overflowTwice(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	return s.Sums(ctx, q, func(c *store.CounterSum) error {
		if q.Groups && string(c.Counter) == q.Index.Overflow() && len(q.Index.GroupPrefixes()) == 1 {
			if err := visit(c); err != nil {
				return err
			}
		}
		return visit(c)
	})
}

// showsDeleted visits counters of a window that were deleted.
func showsDeleted(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	const name = "page:s1:/1"
	found := q.To == 0
	sums, err := s.Sums(ctx, q, func(c *store.CounterSum) error {
		found = found || string(c.Counter) == name
		return visit(c)
	})
	if found || err != nil {
		return sums, err
	}
	v := s.View()
	defer v.Close()
	buckets, err := v.Series(ctx, []store.Record{{Counter: name, Shards: 1}}, q.From, q.To)
	if err != nil {
		return sums, err
	}
	for _, b := range buckets[0] {
		err = errors.Join(err, visit(&store.CounterSum{Counter: []byte(name), Sum: int64(b.Sum.Lo)}))
	}
	return sums, err
}

func minuteMore(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	if more := *q; q.To > 0 {
		more.To++
		q = &more
	}
	return s.Sums(ctx, q, visit)
}

// twoMoments reads every second counter later than the others.
func twoMoments(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	for second := range 2 {
		n := 0
		sums, err := s.Sums(ctx, q, func(c *store.CounterSum) error {
			if n++; n%2 == second {
				return visit(c)
			}
			return nil
		})
		if err != nil || second == 1 {
			return sums, err
		}
	}
	panic("unreachable")
}

func visitsOn(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	return s.Sums(ctx, q, func(c *store.CounterSum) error {
		_ = visit(c)
		return nil
	})
}

// changesLater has the number of changes after the moment of the sums.
func changesLater(ctx context.Context, s *fakestore.Store, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	sums, err := s.Sums(ctx, q, visit)
	time.Sleep(time.Millisecond)
	sums.Changes, _ = s.Changes()
	return sums, err
}
