package protocol

import (
	"context"
	"fmt"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// ResetCounter is a transaction on the record and the marker. Folds touch neither, but for growths in folds, which may come
// before or after it.
func (s *Store) ResetCounter(ctx context.Context, r store.ResetRequest) (done store.ResetResult, err error) {
	defer s.changes.Add(1)
	if r.ID.Class() != wire.ResetClass {
		return done, certain(fmt.Errorf("%w: %s is not the id of a reset", store.ErrRefused, r.ID))
	}
	marker, record := markerKey(r.ID), recordKey(r.Counter)
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		rows, err := s.get(ctx, tx, []engine.Key{marker, record}, append([]engine.FieldID{fieldRemoved, fieldAt}, recordFields...)...)
		if err != nil {
			return err
		}
		if m := &rows[0]; m.Exists {
			// It is durable, so the first attempt is.
			done = store.ResetResult{Removed: m.Int(fieldRemoved), At: timeOf(m.Int64(fieldAt))}
			return nil
		}
		var found *store.ResetState
		if rows[1].Exists {
			state := resetOf(&rows[1])
			found = &state
		}
		var after *store.ResetState
		if after, done, err = r.Apply(found, s.now(tx)); err != nil {
			return err
		}
		if after != nil {
			tx.Change(&engine.Change{Key: record, Op: engine.Update, Set: []engine.Field{
				field(fieldDeletedAt, micros(after.DeletedAt)), field(fieldResetAt, micros(after.ResetAt)), {ID: fieldBaseline, Value: after.Baseline},
			}})
		}
		tx.Change(&engine.Change{Key: marker, Op: engine.Insert, Set: []engine.Field{
			s.dueOf(r.At, r.ExpireAt), {ID: fieldRemoved, Value: done.Removed}, field(fieldAt, micros(done.At)),
		}})
		return nil
	})
	if err != nil {
		return store.ResetResult{}, certain(err)
	}
	return done, nil
}
