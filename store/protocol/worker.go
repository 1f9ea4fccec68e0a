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
func (s *Store) Workers(ctx context.Context) (workers []store.Worker, err error) {
	v := s.view()
	defer v.Close()
	for row, err := range s.scan(ctx, v, engine.Range{Kind: kindWorker}, engine.Data) {
		var w store.Worker
		if err == nil {
			err = json.Unmarshal(row.Data, &w)
		}
		if err != nil {
			return nil, fmt.Errorf("list workers: %w", err)
		}
		workers = append(workers, w)
	}
	return workers, nil
}
