package sim

import (
	"context"

	"github.com/countmill/countmill/store"
)

// Sums is for boards, which no schedule has.
func (s *simStore) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	return s.fake.Sums(ctx, q, visit)
}

// Risen is for boards.
func (s *simStore) Risen(q *store.SumsQuery, since store.RiseMark) store.Rise {
	return s.fake.Risen(q, since)
}
