package storetest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

type nextFunc func(ctx context.Context, s *fakestore.Store, sequence string, takes []store.Take) ([]store.Given, error)

type nexting struct {
	*fakestore.Store
	next nextFunc
}

func (n nexting) below() *fakestore.Store { return n.Store }

func (n nexting) NextValues(ctx context.Context, sequence string, takes []store.Take) ([]store.Given, error) {
	return n.next(ctx, n.Store, sequence, takes)
}

// nexts makes stores that give values in a wrong way.
func nexts(next nextFunc) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store { return nexting{s, next} }
}

// renamed has new ids.
func renamed(takes []store.Take) (others []store.Take) {
	for _, t := range takes {
		var id [1]wire.PartID
		wire.RandomIDs(rand.Reader, wire.SequenceClass, id[:])
		t.ID = id[0]
		others = append(others, t)
	}
	return others
}

func givesAgain(ctx context.Context, s *fakestore.Store, sequence string, takes []store.Take) ([]store.Given, error) {
	return s.NextValues(ctx, sequence, renamed(takes))
}

func givesFirst(ctx context.Context, s *fakestore.Store, sequence string, takes []store.Take) ([]store.Given, error) {
	given, err := s.NextValues(ctx, sequence, takes)
	for i := range given {
		given[i].First = given[0].First
	}
	return given, err
}

// markAfter looks for the markers first, and inserts them in a transaction of their own.
func markAfter(ctx context.Context, s *fakestore.Store, sequence string, takes []store.Take) ([]store.Given, error) {
	for _, t := range takes {
		if found, err := s.Applied(ctx, []wire.PartID{t.ID}); err != nil || len(found) > 0 {
			return s.NextValues(ctx, sequence, takes)
		}
	}
	given, err := s.NextValues(ctx, sequence, renamed(takes))
	if err == nil {
		_, err = s.NextValues(ctx, sequence, takes)
	}
	return given, err
}

func wraps(ctx context.Context, s *fakestore.Store, sequence string, takes []store.Take) ([]store.Given, error) {
	given, err := s.NextValues(ctx, sequence, takes)
	for i := range given {
		if given[i].Count == 0 {
			given[i] = store.Given{First: 1, Count: takes[i].Count}
		}
	}
	return given, err
}

// numbering keeps last values of its own, and does not lock them while it thinks.
type numbering struct {
	*fakestore.Store
	mu   sync.Mutex
	last map[string]int64
}

func (n *numbering) below() *fakestore.Store { return n.Store }

func (n *numbering) NextValues(ctx context.Context, sequence string, takes []store.Take) ([]store.Given, error) {
	n.mu.Lock()
	state := store.SequenceState{Last: n.last[sequence]}
	n.mu.Unlock()
	time.Sleep(100 * time.Microsecond)
	var given []store.Given
	for _, t := range takes {
		given = append(given, state.Give(t.Count))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last[sequence] = state.Last
	return given, ctx.Err()
}

// restarting forgets the last value of a deleted sequence.
type restarting struct {
	*fakestore.Store
	mu     sync.Mutex
	begins map[string]string // the name under which a sequence began last
}

func (r *restarting) below() *fakestore.Store { return r.Store }

func (r *restarting) now(sequence string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name, ok := r.begins[sequence]; ok {
		return name
	}
	return sequence
}

func (r *restarting) NextValues(ctx context.Context, sequence string, takes []store.Take) ([]store.Given, error) {
	return r.Store.NextValues(ctx, r.now(sequence), takes)
}

func (r *restarting) Sequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	return r.Store.Sequence(ctx, r.now(sequence))
}

func (r *restarting) DeleteSequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	before, err := r.Store.DeleteSequence(ctx, r.now(sequence))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begins[sequence] = fmt.Sprintf("%s/%d", sequence, len(r.begins))
	return before, err
}
