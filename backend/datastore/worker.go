package datastore

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
)

const (
	// tidyEvery is how often an aggregator looks for records of ended workers.
	tidyEvery = time.Hour
	// forgotten is how long after its expiry a worker's record is removed.
	forgotten = 24 * time.Hour
)

// Beat replaces the worker's record. Now and then it also removes records of workers that ended long
// ago.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	properties, err := workerProperties(&w)
	if err != nil {
		return err
	}
	if _, err = s.commitOnce(ctx, []*pb.Mutation{s.replace(ref{kindWorker, w.ID}, properties)}); err != nil {
		return s.explain("announce", err)
	}
	s.tidy(ctx)
	return nil
}

func workerProperties(w *store.Worker) (map[string]*pb.Value, error) {
	properties := map[string]*pb.Value{
		"lag": integer(int64(w.Lag)), "stalled": boolean(w.Stalled), "skew": integer(int64(w.Skew)), "last_commit": instant(w.LastCommit), "entries": integer(w.Entries),
		"commits": integer(w.Commits), "settings": integer(w.Settings), "expire_at": instant(w.Expires),
		"increments": integer(w.Increments), "entities": integer(w.Entities), "duplicates": integer(w.Duplicates),
		"dead_letters": integer(w.DeadLetters), "last_dead_letter": instant(w.LastDeadLetter),
	}
	for name, list := range map[string]any{"busiest": w.Busiest, "at_limit": w.AtLimit, "setup": w.Setup} {
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		properties[name] = blob(text)
	}
	return properties, nil
}

// tidy ignores errors: the next call tries again.
func (s *Store) tidy(ctx context.Context) {
	last, at := s.tidied.Load(), now()
	if at.Sub(time.UnixMicro(last)) < tidyEvery || !s.tidied.CompareAndSwap(last, at.UnixMicro()) {
		return
	}
	workers, err := s.Workers(ctx)
	if err != nil {
		return
	}
	var deletes []*pb.Mutation
	for _, w := range workers {
		if at.Sub(w.Expires) > forgotten {
			deletes = append(deletes, s.remove(ref{kindWorker, w.ID}))
		}
	}
	_ = s.commitLots(ctx, deletes)
}

// Workers returns the records of all workers in the order of their ids.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var workers []store.Worker
	_, err = s.query(ctx, nil, span{kind: kindWorker}, math.MaxInt32, func(e *pb.Entity) error {
		w, err := workerOf(e)
		workers = append(workers, w)
		return err
	})
	if err != nil {
		return nil, s.explain("list workers", err)
	}
	return workers, nil
}

// workerOf reads a record. Aggregators of earlier builds wrote it without some properties.
func workerOf(e *pb.Entity) (store.Worker, error) {
	f := fields{entity: e}
	w := store.Worker{
		ID: refOf(e.GetKey()).name, Lag: time.Duration(f.integer("lag")), Stalled: f.boolean("stalled"), LastCommit: f.instant("last_commit"),
		Expires: f.instant("expire_at"), Entries: f.integer("entries"), Commits: f.integer("commits"),
	}
	for name, to := range map[string]*int64{
		"settings": &w.Settings, "increments": &w.Increments, "entities": &w.Entities, "duplicates": &w.Duplicates, "dead_letters": &w.DeadLetters,
	} {
		if f.has(name) {
			*to = f.integer(name)
		}
	}
	if f.has("skew") {
		w.Skew = time.Duration(f.integer("skew"))
	}
	if f.has("last_dead_letter") {
		w.LastDeadLetter = f.instant("last_dead_letter")
	}
	for name, to := range map[string]any{"busiest": &w.Busiest, "at_limit": &w.AtLimit, "setup": &w.Setup} {
		if f.has(name) && json.Unmarshal(f.blob(name), to) != nil {
			f.wrong(name, "JSON of a worker")
		}
	}
	return w, f.err
}
