package fakestore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	maxRests  = 50
	maxPieces = 100
)

type pieceKey struct {
	index int64
	id    int
}

func keyOf(p *store.Piece) pieceKey { return pieceKey{p.Index, p.ID} }

// settle is how long after a change commits by older rules may come.
func (s *Store) settle() time.Duration {
	if s.opts.GrowsInFold {
		return 0
	}
	return store.RulesSettle
}

func (s *Store) groupedLocked(c *store.Commit) {
	for _, g := range c.Grouped {
		a := &c.Adds[g.Add]
		key := shardKey{a.Counter, a.Shard}
		if s.grouped[key] == nil {
			s.grouped[key] = make(map[int64]int64)
		}
		for _, index := range g.Indexes {
			s.grouped[key][index] = saturatingAdd(s.grouped[key][index], a.Delta)
		}
	}
}

// Pieces returns the pieces of an index.
func (s *Store) Pieces(ctx context.Context, index int64) (pieces []store.Piece, err error) {
	err = s.run(ctx, Pieces, func() error {
		for key, p := range s.pieces {
			if key.index == index {
				pieces = append(pieces, p)
			}
		}
		slices.SortFunc(pieces, func(a, b store.Piece) int { return cmp.Compare(a.ID, b.ID) })
		return nil
	})
	return pieces, err
}

// SwapPieces replaces pieces.
func (s *Store) SwapPieces(ctx context.Context, old, next []store.Piece) error {
	if len(old) > maxPieces || len(next) > maxPieces {
		return s.mistake("%d and %d pieces", len(old), len(next))
	}
	return s.run(ctx, SwapPieces, func() error {
		if len(old) == 0 && len(next) > 0 && s.settings.Rules.Numbered(next[0].Index) == nil {
			return fmt.Errorf("fakestore: index %d is gone: %w", next[0].Index, store.ErrNoIndex)
		}
		for i := range old {
			if !s.isStoredLocked(&old[i]) {
				return fmt.Errorf("fakestore: %w", store.ErrChanged)
			}
		}
		for i := range next {
			isNew := !slices.ContainsFunc(old, func(p store.Piece) bool { return p.ID == next[i].ID })
			if _, exists := s.pieces[keyOf(&next[i])]; exists && isNew {
				return fmt.Errorf("fakestore: %w", store.ErrChanged)
			}
		}
		for i := range old {
			delete(s.pieces, keyOf(&old[i]))
		}
		for _, p := range next {
			s.pieces[keyOf(&p)] = p
		}
		return nil
	})
}

func (s *Store) isStoredLocked(p *store.Piece) bool {
	found, ok := s.pieces[keyOf(p)]
	return ok && found.Same(p)
}

// placedLocked returns the shards of a page of a piece, in the order of their places. The start of a page
// is a place and a name.
func (s *Store) placedLocked(x *store.Index, p *store.Piece, from string, limit int) (keys []shardKey, next string) {
	if p.Retired {
		return nil, ""
	}
	for key := range s.shards {
		if place := wire.ShardHash(key.counter, key.shard); place >= p.From && place <= p.To && startOf(key) > from && strings.HasPrefix(key.counter, x.Prefix()) && !countmill.IsGroup(key.counter) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b shardKey) int { return strings.Compare(startOf(a), startOf(b)) })
	if len(keys) > limit {
		keys = keys[:limit]
		next = startOf(keys[limit-1])
	}
	return keys, next
}

func startOf(key shardKey) string {
	return fmt.Sprintf("%016x %s %s", wire.ShardHash(key.counter, key.shard), key.counter, strconv.Itoa(key.shard))
}

// Ungrouped returns a page of a piece.
func (s *Store) Ungrouped(ctx context.Context, x *store.Index, p *store.Piece, from string, limit int) (page store.UngroupedPage, err error) {
	err = s.run(ctx, Ungrouped, func() error {
		var keys []shardKey
		page.At = s.readTimeLocked()
		keys, page.Next = s.placedLocked(x, p, from, limit)
		for _, key := range keys {
			count, _ := s.shards[key].newest()
			grouped := s.grouped[key][x.Number]
			page.Shards, page.Place = page.Shards+1, wire.ShardHash(key.counter, key.shard)
			overflow := count == math.MaxInt64 || count == math.MinInt64
			if rest := count - grouped; rest != 0 || overflow {
				page.Rests = append(page.Rests, store.Ungrouped{Counter: key.counter, Rest: rest, Overflow: overflow})
			}
		}
		return nil
	})
	return page, err
}

// A restSum is a sum of rests: of their lower 32 bits, and of the upper ones. A rest at an end of int64 is no
// number: it makes the sum one too.
type restSum struct{ low, high int64 }

func (a restSum) moved(from, to int64) restSum {
	for _, m := range []struct{ rest, sign int64 }{{from, -1}, {to, 1}} {
		low, high := m.rest&(1<<32-1), m.rest>>32
		if m.rest == math.MaxInt64 || m.rest == math.MinInt64 {
			low, high = 0, 1<<50
		}
		a.low, a.high = a.low+m.sign*low, a.high+m.sign*high
	}
	return a
}

func (a restSum) total() (rest int64, overflow bool) {
	high := a.high + a.low>>32
	rest = high<<32 | a.low&(1<<32-1)
	return rest, rest>>32 != high || rest == math.MaxInt64 || rest == math.MinInt64
}

// SetRests sets a piece's parts of the totals of groups.
func (s *Store) SetRests(ctx context.Context, p *store.Piece, rests []store.GroupRest) error {
	if len(rests) > maxRests {
		return s.mistake("%d rests", len(rests))
	}
	return s.run(ctx, SetRests, func() error {
		if !s.isStoredLocked(p) {
			return fmt.Errorf("fakestore: %w", store.ErrChanged)
		}
		if s.rests[keyOf(p)] == nil {
			s.rests[keyOf(p)] = make(map[string]int64)
		}
		have := s.rests[keyOf(p)]
		at := s.commitTimeLocked()
		for _, r := range rests {
			if r.Rest == have[r.Group] {
				continue
			}
			rec, _ := s.records[r.Group].newest()
			rec.exists, rec.shards, rec.DeletedAt = true, max(rec.shards, int64(max(s.opts.Shards, 1))), time.Time{}
			rec.rest = rec.rest.moved(have[r.Group], r.Rest)
			s.changes++
			s.records[r.Group] = s.records[r.Group].set(at, rec, s.oldestLocked())
			if have[r.Group] = r.Rest; r.Rest == 0 {
				delete(have, r.Group)
			}
		}
		return nil
	})
}

// RestsOf lists the rests of a piece.
func (s *Store) RestsOf(ctx context.Context, p *store.Piece, after string, limit int) (rests []store.GroupRest, err error) {
	err = s.run(ctx, RestsOf, func() error {
		have := s.rests[keyOf(p)]
		for _, group := range slices.Sorted(maps.Keys(have)) {
			if group > after && len(rests) < limit {
				rests = append(rests, store.GroupRest{Group: group, Rest: have[group]})
			}
		}
		return nil
	})
	return rests, err
}

// DropGrouped removes grouped parts.
func (s *Store) DropGrouped(ctx context.Context, x *store.Index, p *store.Piece, from string, limit int) (next string, err error) {
	err = s.run(ctx, DropGrouped, func() error {
		var keys []shardKey
		keys, next = s.placedLocked(x, p, from, limit)
		for _, key := range keys {
			delete(s.grouped[key], x.Number)
		}
		return nil
	})
	return next, err
}

// DropGroups removes groups.
func (s *Store) DropGroups(ctx context.Context, x *store.Index, limit int) (dropped int, err error) {
	err = s.run(ctx, DropGroups, func() error {
		if !s.settings.Rules.Ended(x) {
			return fmt.Errorf("fakestore: %w", store.ErrChanged)
		}
		at, keep := s.commitTimeLocked(), s.oldestLocked()
		for group, h := range s.records {
			rec, _ := h.newest()
			if !rec.exists || !x.HasGroup(group) || dropped == limit {
				continue
			}
			for n := range int(rec.shards) {
				key := shardKey{group, n}
				if _, ok := s.shards[key]; ok {
					s.shards[key] = s.shards[key].set(at, 0, keep)
					s.bucketed[key] = s.bucketed[key].set(at, 0, keep)
					delete(s.shardStats, key)
				}
			}
			s.dropSeriesLocked(group, at, keep)
			s.records[group] = h.set(at, record{}, keep)
			dropped++
		}
		maps.DeleteFunc(s.rests, func(key pieceKey, _ map[string]int64) bool { return key.index == x.Number })
		return nil
	})
	return dropped, err
}

// Grouped returns the part of a shard's count that was folded with an index.
func (s *Store) Grouped(counter string, shard int, index int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grouped[shardKey{counter, shard}][index]
}
