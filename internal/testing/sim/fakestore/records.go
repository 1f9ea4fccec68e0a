package fakestore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// maxEntity is the most bytes of an entity in Datastore.
const maxEntity = 1<<20 - 4

// Applied returns the markers that exist.
func (s *Store) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	answer, err := s.begin(ctx, Applied, nil)
	if err != nil {
		return nil, err
	}
	if len(ids) > s.opts.Keys {
		return nil, s.overLimit("keys in a look-up", len(ids), s.opts.Keys)
	}
	var found []store.Marker
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

// Shards reads the newest records.
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

// Grow writes records.
func (s *Store) Grow(ctx context.Context, growths []store.Growth) error {
	answer, err := s.begin(ctx, Grow, nil)
	if err != nil {
		return err
	}
	if len(growths) > s.opts.Keys {
		return s.overLimit("records in a Grow", len(growths), s.opts.Keys)
	}
	for _, r := range growths {
		if err := s.checkGrowth(r); err != nil {
			return err
		}
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.growLocked(growths, s.commitTimeLocked())
		s.counts.Raises++
		return nil
	})
}

func (s *Store) checkGrowth(r store.Growth) error {
	if err := countmill.CheckName(r.Counter); err != nil || r.Shards < 1 || r.Shards > countmill.MaxShards {
		return s.mistake("growth of %q to %d shards", r.Counter, r.Shards)
	}
	return nil
}

func (s *Store) growLocked(growths []store.Growth, at time.Time) {
	s.changes++ // deleted counters may exist again
	keep := s.oldestLocked()
	for _, r := range growths {
		if rec, _ := s.records[r.Counter].newest(); int64(r.Shards) > rec.shards || !rec.DeletedAt.IsZero() {
			rec.exists, rec.shards, rec.DeletedAt = true, max(rec.shards, int64(r.Shards)), time.Time{}
			s.records[r.Counter] = s.records[r.Counter].set(at, rec, keep)
		}
	}
	s.counts.Raised += len(growths)
}

// PutDeadLetters writes dead letters. It refuses a letter that is larger than an entity may be.
func (s *Store) PutDeadLetters(ctx context.Context, letters []store.DeadLetter) error {
	answer, err := s.begin(ctx, PutDeadLetters, nil)
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
			s.putDeadLetterRefsLocked(d.DeadLetterRefs)
			d.Payload, d.DeadLetterRefs = slices.Clone(d.Payload), nil
			s.dead[d.Key] = d
		}
		s.counts.Buried += len(letters)
		return nil
	})
}

// DeleteDeadLetters removes dead letters.
func (s *Store) DeleteDeadLetters(ctx context.Context, keys []string) error {
	answer, err := s.begin(ctx, DeleteDeadLetters, nil)
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

// ListDeadLetters returns up to limit dead letters in the order of their keys, after the key after.
func (s *Store) ListDeadLetters(ctx context.Context, after string, limit int) ([]store.DeadLetter, error) {
	answer, err := s.begin(ctx, ListDeadLetters, nil)
	if err != nil {
		return nil, err
	}
	var letters []store.DeadLetter
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

// GetDeadLetters returns the dead letters with these keys. It omits keys without a letter.
func (s *Store) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	answer, err := s.begin(ctx, GetDeadLetters, nil)
	if err != nil {
		return nil, err
	}
	var letters []store.DeadLetter
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

func (s *Store) putDeadLetterRefsLocked(refs []store.DeadLetterRef) {
	for _, a := range refs {
		if s.refs[a.Completion] == nil {
			s.refs[a.Completion] = make(map[string]store.DeadLetterRef)
		}
		a.Parts = slices.Clone(a.Parts)
		s.refs[a.Completion][a.Key] = a
	}
}

// DeadLetterRefs returns the notes under these completion markers.
func (s *Store) DeadLetterRefs(ctx context.Context, completions []wire.PartID) (found []store.DeadLetterRef, err error) {
	answer, err := s.begin(ctx, DeadLetterRefs, nil)
	if err != nil {
		return nil, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, completion := range completions {
			for _, letter := range slices.Sorted(maps.Keys(s.refs[completion])) {
				found = append(found, s.refs[completion][letter])
			}
		}
		return nil
	})
	return found, err
}

// Beat replaces the worker's record.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	answer, err := s.begin(ctx, Beat, nil)
	if err != nil {
		return err
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.workers[w.ID] = w
		s.counts.Announced++
		return nil
	})
}

// Workers returns the records of all workers in the order of their ids.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	answer, err := s.begin(ctx, Workers, nil)
	if err != nil {
		return nil, err
	}
	var workers []store.Worker
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
