package fakestore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
)

// maxEntity is the most bytes of an entity in Datastore.
const maxEntity = 1<<20 - 4

// Applied looks markers up.
func (s *Store) Applied(ctx context.Context, ids []wire.PartID) ([]aggregator.Marker, error) {
	answer, err := s.begin(ctx, Applied, nil)
	if err != nil {
		return nil, err
	}
	if len(ids) > s.opts.Keys {
		return nil, s.overLimit("keys in a look-up", len(ids), s.opts.Keys)
	}
	var found []aggregator.Marker
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts.MarkersRead += len(ids)
		for _, id := range ids {
			if m, ok := s.markers[id]; ok && answer != Blank {
				found = append(found, m)
			}
		}
		return nil
	})
	return found, err
}

// Shards reads records, always the newest.
func (s *Store) Shards(ctx context.Context, counters []string) ([]int, error) {
	answer, err := s.begin(ctx, Shards, nil)
	if err != nil {
		return nil, err
	}
	if len(counters) > s.opts.Keys {
		return nil, s.overLimit("keys in a look-up", len(counters), s.opts.Keys)
	}
	shards := make([]int, len(counters))
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts.RecordsRead += len(counters)
		for i, counter := range counters {
			if r, _ := s.records[counter].newest(); answer != Blank && r.DeletedAt.IsZero() {
				shards[i] = int(r.shards)
			}
		}
		return nil
	})
	return shards, err
}

// Raise writes records.
func (s *Store) Raise(ctx context.Context, raises []aggregator.Raise) error {
	answer, err := s.begin(ctx, Raise, nil)
	if err != nil {
		return err
	}
	if len(raises) > s.opts.Keys {
		return s.overLimit("records in a raise", len(raises), s.opts.Keys)
	}
	for _, r := range raises {
		if err := s.checkRaise(r); err != nil {
			return err
		}
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.raiseLocked(raises, s.commitTimeLocked())
		s.counts.Raises++
		return nil
	})
}

func (s *Store) checkRaise(r aggregator.Raise) error {
	if err := countmill.CheckCounter(r.Counter); err != nil || r.Shards < 1 || r.Shards > countmill.MaxShards {
		return s.mistake("raise of %q to %d shards", r.Counter, r.Shards)
	}
	return nil
}

func (s *Store) raiseLocked(raises []aggregator.Raise, at time.Time) {
	keep := s.oldestLocked()
	for _, r := range raises {
		if rec, _ := s.records[r.Counter].newest(); int64(r.Shards) > rec.shards || !rec.DeletedAt.IsZero() {
			rec.exists, rec.shards, rec.DeletedAt = true, max(rec.shards, int64(r.Shards)), time.Time{}
			s.records[r.Counter] = s.records[r.Counter].set(at, rec, keep)
		}
	}
	s.counts.Raised += len(raises)
}

// Bury writes dead letters. One that is larger than an entity may be is refused.
func (s *Store) Bury(ctx context.Context, letters []aggregator.Dead) error {
	answer, err := s.begin(ctx, Bury, nil)
	if err != nil {
		return err
	}
	for _, d := range letters {
		if size := len(d.Payload) + len(d.Reason) + len(d.Source) + len(d.Key) + 200; size > maxEntity {
			return s.overLimit("bytes in a dead letter", size, maxEntity)
		}
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, d := range letters {
			d.Payload = slices.Clone(d.Payload)
			s.dead[d.Key] = d
		}
		s.counts.Buried += len(letters)
		return nil
	})
}

// Discard removes dead letters.
func (s *Store) Discard(ctx context.Context, keys []string) error {
	answer, err := s.begin(ctx, Discard, nil)
	if err != nil {
		return err
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range keys {
			delete(s.dead, key)
		}
		s.counts.Discarded += len(keys)
		return nil
	})
}

// Dead returns dead letters in the order of their keys.
func (s *Store) Dead(ctx context.Context, after string, limit int) ([]aggregator.Dead, error) {
	answer, err := s.begin(ctx, Dead, nil)
	if err != nil {
		return nil, err
	}
	var letters []aggregator.Dead
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range slices.Sorted(maps.Keys(s.dead)) {
			if key > after && len(letters) < limit {
				letters = append(letters, s.dead[key])
			}
		}
		return nil
	})
	return letters, err
}

// DeadByKey looks dead letters up.
func (s *Store) DeadByKey(ctx context.Context, keys []string) ([]aggregator.Dead, error) {
	answer, err := s.begin(ctx, ByKey, nil)
	if err != nil {
		return nil, err
	}
	var letters []aggregator.Dead
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range keys {
			if d, ok := s.dead[key]; ok {
				letters = append(letters, d)
			}
		}
		return nil
	})
	return letters, err
}

// Announce replaces the worker's record.
func (s *Store) Announce(ctx context.Context, w aggregator.Worker) error {
	answer, err := s.begin(ctx, Announce, nil)
	if err != nil {
		return err
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.workers[w.ID] = reader.Worker(w)
		s.counts.Announced++
		return nil
	})
}

// Workers returns all workers' records in the order of their ids.
func (s *Store) Workers(ctx context.Context) ([]reader.Worker, error) {
	answer, err := s.begin(ctx, Workers, nil)
	if err != nil {
		return nil, err
	}
	var workers []reader.Worker
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, id := range slices.Sorted(maps.Keys(s.workers)) {
			workers = append(workers, s.workers[id])
		}
		return nil
	})
	return workers, err
}
