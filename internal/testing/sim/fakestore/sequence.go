package fakestore

import (
	"context"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// NextValues gives values in one transaction.
func (s *Store) NextValues(ctx context.Context, sequence string, takes []store.Take) (given []store.Given, err error) {
	answer, err := s.begin(ctx, NextValues, nil)
	if err != nil {
		return nil, err
	}
	if err := store.CheckTakes(takes); err != nil {
		return nil, err
	}
	twice := make(map[wire.PartID]bool)
	for _, t := range takes {
		if twice[t.ID] {
			return nil, s.mistake("the id %s is in two takes of one call", t.ID)
		}
		twice[t.ID] = true
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.commitTimeLocked()
		given = s.giveLocked(sequence, takes)
		return nil
	})
	return given, undone(err)
}

func (s *Store) giveLocked(sequence string, takes []store.Take) (given []store.Given) {
	state := s.sequences[sequence]
	for _, t := range takes {
		if _, ok := s.markers[t.ID]; ok {
			given = append(given, s.given[t.ID])
			continue
		}
		g := state.Give(t.Count)
		if g.Count > 0 {
			s.markers[t.ID] = store.Marker{ID: t.ID, At: t.At, ExpireAt: t.ExpireAt}
			s.given[t.ID] = g
		}
		given = append(given, g)
	}
	s.sequences[sequence] = state
	return given
}

// Sequence returns the state of a sequence.
func (s *Store) Sequence(ctx context.Context, sequence string) (state store.SequenceState, err error) {
	err = s.run(ctx, Sequence, func() error {
		state = s.sequences[sequence]
		return nil
	})
	return state, err
}

// DeleteSequence keeps the last value.
func (s *Store) DeleteSequence(ctx context.Context, sequence string) (before store.SequenceState, err error) {
	err = s.run(ctx, DeleteSequence, func() error {
		at := s.commitTimeLocked()
		if before = s.sequences[sequence]; before.Exists() {
			s.sequences[sequence] = store.SequenceState{Last: before.Last, Deleted: at}
		}
		return nil
	})
	return before, undone(err)
}
