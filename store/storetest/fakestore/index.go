package fakestore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

const (
	maxRemainders = 50
	maxRanges     = 100
)

type rangeKey struct {
	index int64
	id    int
}

func keyOf(p *store.IndexRange) rangeKey { return rangeKey{p.Index, p.ID} }

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
			s.grouped[key] = make(map[int64]int128.Int)
		}
		for _, index := range g.Indexes {
			s.grouped[key][index] = s.grouped[key][index].Add(int128.Of(a.Delta))
		}
	}
}

// Ranges returns the ranges of an index.
func (s *Store) Ranges(ctx context.Context, index int64) (ranges []store.IndexRange, err error) {
	err = s.run(ctx, Ranges, func() error {
		for key, p := range s.ranges {
			if key.index == index {
				ranges = append(ranges, p)
			}
		}
		slices.SortFunc(ranges, func(a, b store.IndexRange) int { return cmp.Compare(a.ID, b.ID) })
		return nil
	})
	return ranges, err
}

// SwapRanges replaces ranges.
func (s *Store) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	if len(old) > maxRanges || len(next) > maxRanges {
		return s.mistake("%d and %d ranges", len(old), len(next))
	}
	return s.run(ctx, SwapRanges, func() error {
		if len(old) == 0 && len(next) > 0 && s.settings.Rules.Numbered(next[0].Index) == nil {
			return fmt.Errorf("fakestore: index %d is gone: %w", next[0].Index, store.ErrNoIndex)
		}
		for i := range old {
			if !s.isStoredLocked(&old[i]) {
				return fmt.Errorf("fakestore: %w", store.ErrChanged)
			}
		}
		for i := range next {
			isNew := !slices.ContainsFunc(old, func(p store.IndexRange) bool { return p.ID == next[i].ID })
			if _, exists := s.ranges[keyOf(&next[i])]; exists && isNew {
				return fmt.Errorf("fakestore: %w", store.ErrChanged)
			}
		}
		for i := range old {
			delete(s.ranges, keyOf(&old[i]))
		}
		for _, p := range next {
			s.ranges[keyOf(&p)] = p
		}
		return nil
	})
}

func (s *Store) isStoredLocked(p *store.IndexRange) bool {
	found, ok := s.ranges[keyOf(p)]
	return ok && found.Same(p)
}

// placedLocked returns the shards of a page of a range, in the order of their places. The start of a page
// is a place and a name.
func (s *Store) placedLocked(x *store.Index, p *store.IndexRange, from string, limit int) (keys []shardKey, next string) {
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

// Ungrouped returns a page of a range.
func (s *Store) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (page store.UngroupedPage, err error) {
	err = s.run(ctx, Ungrouped, func() error {
		var keys []shardKey
		page.At = s.readTimeLocked()
		keys, page.Next = s.placedLocked(x, p, from, limit)
		for _, key := range keys {
			count, _ := s.shards[key].newest()
			grouped := s.grouped[key][x.Number]
			page.Shards, page.Place = page.Shards+1, wire.ShardHash(key.counter, key.shard)
			if remainder := count.Sub(grouped); remainder != (int128.Int{}) {
				page.Remainders = append(page.Remainders, store.Ungrouped{Counter: key.counter, Remainder: remainder})
			}
		}
		return nil
	})
	return page, err
}

// SetRemainders sets a range's parts of the totals of groups.
func (s *Store) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	if len(remainders) > maxRemainders {
		return s.mistake("%d remainders", len(remainders))
	}
	return s.run(ctx, SetRemainders, func() error {
		if !s.isStoredLocked(p) {
			return fmt.Errorf("fakestore: %w", store.ErrChanged)
		}
		if s.remainders[keyOf(p)] == nil {
			s.remainders[keyOf(p)] = make(map[string]int128.Int)
		}
		have := s.remainders[keyOf(p)]
		at := s.commitTimeLocked()
		for _, r := range remainders {
			if r.Remainder == have[r.Group] {
				continue
			}
			rec, _ := s.records[r.Group].newest()
			rec.exists, rec.shards, rec.DeletedAt = true, max(rec.shards, int64(max(s.opts.Shards, 1))), time.Time{}
			rec.remainder = rec.remainder.Add(r.Remainder).Sub(have[r.Group])
			s.changes++
			s.records[r.Group] = s.records[r.Group].set(at, rec, s.oldestLocked())
			if have[r.Group] = r.Remainder; r.Remainder == (int128.Int{}) {
				delete(have, r.Group)
			}
		}
		return nil
	})
}

// RemaindersOf lists the remainders of a range.
func (s *Store) RemaindersOf(ctx context.Context, p *store.IndexRange, after string, limit int) (remainders []store.GroupRemainder, err error) {
	err = s.run(ctx, RemaindersOf, func() error {
		have := s.remainders[keyOf(p)]
		for _, group := range slices.Sorted(maps.Keys(have)) {
			if group > after && len(remainders) < limit {
				remainders = append(remainders, store.GroupRemainder{Group: group, Remainder: have[group]})
			}
		}
		return nil
	})
	return remainders, err
}

// DropGrouped removes grouped parts.
func (s *Store) DropGrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (next string, err error) {
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
					s.shards[key] = s.shards[key].set(at, int128.Int{}, keep)
					s.bucketed[key] = s.bucketed[key].set(at, int128.Int{}, keep)
					delete(s.shardStats, key)
				}
			}
			s.dropSeriesLocked(group, at, keep)
			s.records[group] = h.set(at, record{}, keep)
			dropped++
		}
		maps.DeleteFunc(s.remainders, func(key rangeKey, _ map[string]int128.Int) bool { return key.index == x.Number })
		return nil
	})
	return dropped, err
}

// Grouped returns the part of a shard's count that was folded with an index.
func (s *Store) Grouped(counter string, shard int, index int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.grouped[shardKey{counter, shard}][index].Lo)
}
