package protocol

import (
	"context"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

func (s *Store) sequenceKey(name string) engine.Key {
	return engine.Key{Kind: kindSequence, Place: s.place(name), Name: name}
}

// sequenceState returns the state in a row. Each restore of the database since the row was written has moved it, also if there is no
// row: the lost process may have begun the sequence.
func sequenceState(row *engine.Row, restores int64) store.SequenceState {
	state := store.SequenceState{Last: row.Int64(fieldLast), Used: row.Exists, Deleted: timeOf(row.Int64(fieldDeletedAt))}
	state.Skip(max(0, restores-row.Int64(fieldRestores)))
	return state
}

func setSequence(tx engine.Tx, key engine.Key, state store.SequenceState) {
	tx.Change(&engine.Change{Key: key, Set: []engine.Field{
		field(fieldDeletedAt, micros(state.Deleted)), field(fieldLast, state.Last), field(fieldRestores, tx.Restores()),
	}})
}

// NextValues reads the sequence and the markers of the takes, and writes both, in one transaction: nobody finds a value
// without its marker.
func (s *Store) NextValues(ctx context.Context, sequence string, takes []store.Take) (given []store.Given, err error) {
	if err := store.CheckTakes(takes); err != nil {
		return nil, err
	}
	keys := append(make([]engine.Key, 0, 1+len(takes)), s.sequenceKey(sequence))
	for i := range takes {
		keys = append(keys, markerKey(takes[i].ID))
	}
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		rows, err := s.get(ctx, tx, keys, fieldDeletedAt, fieldFirst, fieldValues, fieldLast, fieldRestores)
		if err != nil {
			return err
		}
		state, fresh := sequenceState(&rows[0], tx.Restores()), false
		given = make([]store.Given, len(takes))
		insert := &engine.Change{Op: engine.Insert}
		for i := range takes {
			t, marker := &takes[i], &rows[i+1]
			if marker.Exists {
				given[i] = store.Given{First: marker.Int64(fieldFirst), Count: int(marker.Int64(fieldValues))}
			} else if given[i] = state.Give(t.Count); given[i].Count > 0 {
				fresh = true
				insert.Key, insert.Set = keys[i+1], append(insert.Set[:0], s.dueOf(t.At, t.ExpireAt), field(fieldFirst, given[i].First),
					field(fieldValues, int64(given[i].Count)))
				tx.Change(insert)
			}
		}
		if fresh {
			setSequence(tx, keys[0], state)
		}
		return nil
	})
	if err != nil {
		return nil, certain(err)
	}
	return given, nil
}

// Sequence reads the row. A view has only durable values.
func (s *Store) Sequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	v := s.view()
	defer v.Close()
	rows, err := s.get(ctx, v, []engine.Key{s.sequenceKey(sequence)}, fieldDeletedAt, fieldLast, fieldRestores)
	if err != nil {
		return store.SequenceState{}, err
	}
	return sequenceState(&rows[0], s.restores.Load()), nil
}

// DeleteSequence keeps the row, because that has the last value.
func (s *Store) DeleteSequence(ctx context.Context, sequence string) (before store.SequenceState, err error) {
	key := s.sequenceKey(sequence)
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		rows, err := s.get(ctx, tx, []engine.Key{key}, fieldDeletedAt, fieldLast, fieldRestores)
		if err != nil {
			return err
		}
		if before = sequenceState(&rows[0], tx.Restores()); before.Exists() {
			after := before
			after.Deleted = s.now(tx)
			setSequence(tx, key, after)
		}
		return nil
	})
	if err != nil {
		return store.SequenceState{}, certain(err)
	}
	return before, nil
}
