package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// forgotten is how long after its expiry a worker's row stays: each start of a process may leave one.
const forgotten = 24 * time.Hour

// Beat replaces the worker's row.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	data, err := json.Marshal(&w)
	if err != nil {
		return err
	}
	return s.commit(ctx, true, []engine.Change{{
		Key: engine.Key{Kind: kindWorker, Name: w.ID}, Set: []engine.Field{field(fieldDue, micros(w.Expires.Add(forgotten)))}, Data: data,
	}})
}

// forgetWorkers removes the rows of processes that had the database before: they have ended, also if they were killed.
func (s *Store) forgetWorkers(ctx context.Context) error {
	if !s.limits.Exclusive {
		return nil
	}
	v := s.view()
	defer v.Close()
	keys, err := v.keys(ctx, engine.Range{Kind: kindWorker}, math.MaxInt)
	if err != nil {
		return err
	}
	return s.commit(ctx, true, deletes(keys...))
}

// Workers returns the rows in the order of ids.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	v := s.view()
	defer v.Close()
	return list(ctx, v, engine.Range{Kind: kindWorker}, 0, func(row *engine.Row) (w store.Worker, err error) {
		if err = json.Unmarshal(row.Data, &w); err != nil {
			err = fmt.Errorf("worker %q: %w", row.Key.Name, err)
		}
		return w, err
	}, engine.Data)
}
