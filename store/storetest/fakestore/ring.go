package fakestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// With Options.Ring, folds add buckets to a ring in the shard, and moves take them from there to the
// archive, as in Datastore.

// A ringKey is a bucket of a shard.
type ringKey struct {
	shard  int
	minute wire.Minute
}

// A cell is a version of a bucket in a ring. A bucket of sum 0 takes room until it is moved.
type cell struct {
	there bool
	sum   int128.Int
}

func (s *Store) addCellLocked(key shardKey, minute wire.Minute, delta int128.Int, at, keep time.Time) {
	cells := s.ring[key.counter]
	if cells == nil {
		cells = make(map[ringKey]history[cell])
		s.ring[key.counter] = cells
	}
	in := ringKey{key.shard, minute}
	was, _ := cells[in].newest()
	cells[in] = cells[in].set(at, cell{true, was.sum.Add(delta)}, keep)
}

// dropCellLocked removes a bucket, and forgets it if no view can see it.
func (s *Store) dropCellLocked(counter string, in ringKey, at, keep time.Time) {
	cells := s.ring[counter]
	if cells[in] = cells[in].set(at, cell{}, keep); len(cells[in]) == 1 {
		delete(cells, in)
	}
}

// cellsAtLocked visits the buckets of a counter's shards at a moment.
func (s *Store) cellsAtLocked(counter string, at time.Time, visit func(wire.Minute, int128.Int)) {
	for key, h := range s.ring[counter] {
		if c, _ := h.at(at); c.there {
			visit(key.minute, c.sum)
		}
	}
}

// A Move is a transaction that has read a shard.
type Move struct {
	counter string
	shard   int
	at      time.Time // when it read
	found   map[wire.Minute]int128.Int
}

// String names the shard and the number of its buckets.
func (m *Move) String() string {
	return fmt.Sprintf("%d buckets of shard %d of %s", len(m.found), m.shard, m.counter)
}

// ReadMoves begins a transaction on each shard with more buckets than Ring.Buckets, in the order of
// their counters and numbers.
func (s *Store) ReadMoves() []*Move {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readMovesLocked()
}

func (s *Store) readMovesLocked() (moves []*Move) {
	if s.opts.Ring.Buckets == 0 {
		return nil
	}
	at := s.readTimeLocked()
	for _, counter := range slices.Sorted(maps.Keys(s.ring)) {
		shards := make(map[int]*Move)
		for key, h := range s.ring[counter] {
			c, _ := h.newest()
			if !c.there {
				continue
			}
			if shards[key.shard] == nil {
				shards[key.shard] = &Move{counter, key.shard, at, make(map[wire.Minute]int128.Int)}
			}
			shards[key.shard].found[key.minute] = c.sum
		}
		for _, shard := range slices.Sorted(maps.Keys(shards)) {
			if len(shards[shard].found) > s.opts.Ring.Buckets {
				moves = append(moves, shards[shard])
			}
		}
	}
	return moves
}

// CommitMove ends a transaction. It changes nothing, and returns ErrContended, if the shard has changed
// since it was read.
func (s *Store) CommitMove(m *Move) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commitMoveLocked(m)
}

func (s *Store) commitMoveLocked(m *Move) error {
	key := shardKey{m.counter, m.shard}
	// A fold or another move came between.
	if s.changed[key].After(m.at) {
		return fmt.Errorf("fakestore: %w: %s", store.ErrContended, m)
	}
	at, keep := s.commitTimeLocked(), s.oldestLocked()
	s.changed[key] = at
	days := make(map[wire.Minute]struct{})
	for _, minute := range slices.Sorted(maps.Keys(m.found)) {
		days[minute/store.DayMinutes] = struct{}{}
		if sum := m.found[minute]; sum != (int128.Int{}) {
			// What is added here is removed there.
			s.addBucketLocked(m.counter, bucketKey{minute: minute}, sum, at, keep)
		}
		s.dropCellLocked(m.counter, ringKey{m.shard, minute}, at, keep)
	}
	s.counts.Moves++
	s.counts.MoveEntities += 1 + len(days)
	return nil
}

// MoveSeries moves each shard with too many buckets.
func (s *Store) MoveSeries(ctx context.Context) (moved int, err error) {
	answer, err := s.begin(ctx, MoveSeries, nil)
	if err != nil {
		return 0, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		moves := s.readMovesLocked()
		for _, m := range moves {
			if err := s.commitMoveLocked(m); err != nil {
				return err
			}
		}
		moved = len(moves)
		return nil
	})
	return moved, err
}

// RingBuckets returns the number of buckets in the ring of a counter's fullest shard.
func (s *Store) RingBuckets(counter string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	buckets := make(map[int]int)
	most := 0
	for key, h := range s.ring[counter] {
		if c, _ := h.newest(); c.there {
			buckets[key.shard]++
			most = max(most, buckets[key.shard])
		}
	}
	return most
}
