package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
)

// seriesLot is the number of keys that are swept while folds wait.
const seriesLot = 200

// SweepSeries looks at each day once for every retention that has ended for the whole day. A key
// of its own says how far a day was swept, so a call without work costs a seek for each day.
func (s *Store) SweepSeries(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	// By the clock, and not by moments: a clock that showed 2040 once leaves those there.
	now, rules := s.cfg.clock(), s.advance().Rules
	var days []seriesDay
	err := eachDay(s.db, s.keys, 0, lastDay, func(d seriesDay) error {
		days = append(days, d)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	for _, d := range days {
		if err := s.sweepDay(ctx, d, rules, now); err != nil {
			return fmt.Errorf("series of %s: %w", d.first().Time().Format(time.DateOnly), err)
		}
	}
	return nil
}

// sweepDay joins and removes what rules promise no longer. Folds into the day go on meanwhile:
// later sums wait for the next retention that ends.
func (s *Store) sweepDay(ctx context.Context, d seriesDay, rules *store.Rules, now time.Time) error {
	stage, over := stageOf(d, rules, now)
	if !over {
		return nil
	}
	stageKey := s.keys.stage(nil, d)
	switch was, closer, err := s.db.Get(stageKey); {
	case err == nil && slices.Equal(was, stage):
		return closer.Close()
	case err == nil:
		if err := closer.Close(); err != nil {
			return err
		}
	case !errors.Is(err, pebbledb.ErrNotFound):
		return err
	}
	prefix := s.keys.day(nil, d)
	for from, end := prefix, after(prefix); ; {
		keys, err := s.keysFrom(from, end)
		if err != nil || len(keys) == 0 {
			if err == nil {
				err = s.noteStage(d, stageKey, stage)
			}
			return err
		}
		if err := s.sweepSeriesLot(keys, d, now); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		from = append(keys[len(keys)-1], 0)
	}
}

// stageOf identifies the work of a sweep of a day: the promises of the rules that are over. It
// is not over if none is.
func stageOf(d seriesDay, rules *store.Rules, now time.Time) (stage []byte, over bool) {
	h := fnv.New64a()
	if rules == nil {
		return h.Sum(nil), true
	}
	for _, r := range rules.Series {
		joins, removes := isOver(d, r.Keep.Minutes, now), isOver(d, r.Keep.Quarters, now)
		over = over || joins
		fmt.Fprintf(h, "%q %s %t %t;", r.Pattern, r.Keep, joins, removes)
	}
	return h.Sum(nil), over
}

// isOver reports whether everything of a day was kept for that long.
func isOver(d seriesDay, keep time.Duration, now time.Time) bool {
	return (d + 1).first().Time().Add(keep + store.SeriesSlack).Before(now)
}

// keysFrom returns the next keys of a range.
func (s *Store) keysFrom(from, end []byte) (keys [][]byte, err error) {
	iter, err := s.db.NewIter(&pebbledb.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return nil, err
	}
	for ok := iter.First(); ok && len(keys) < seriesLot; ok = iter.Next() {
		keys = append(keys, slices.Clone(iter.Key()))
	}
	return keys, errors.Join(iter.Error(), iter.Close())
}

// sweepSeriesLot reads each key again while no fold runs, so that no delta comes between its read
// and its write.
// It does not sync: before and after the batch the sums are the same, and the log keeps the order.
func (s *Store) sweepSeriesLot(keys [][]byte, d seriesDay, now time.Time) error {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	rules := s.advance().Rules
	b := s.db.NewBatch()
	defer b.Close()
	for _, key := range keys {
		counter, err := s.keys.seriesCounter(key)
		if err != nil {
			return err
		}
		keep := rules.KeepOf(counter)
		if isOver(d, keep.Quarters, now) {
			if err := b.Delete(key, nil); err != nil {
				return err
			}
			continue
		}
		if !isOver(d, keep.Minutes, now) {
			continue
		}
		if err := s.joinMinutes(b, key); err != nil {
			return fmt.Errorf("%q: %w", counter, err)
		}
	}
	if b.Empty() {
		return nil
	}
	return b.Commit(pebbledb.NoSync)
}

// joinMinutes adds the minutes of a counter's day to its quarter hours.
func (s *Store) joinMinutes(b *pebbledb.Batch, key []byte) error {
	pairs, _, err := getSeries(s.db, key)
	if err != nil || len(pairs) == 0 || pairs[0].slot.quarter() {
		return err
	}
	joined := new(seriesMerger)
	for _, p := range pairs {
		joined.add(slotSum{p.slot.joined(), p.sum})
	}
	return b.Set(key, encodeSeries(nil, joined.pairs), nil)
}

// noteStage notes that a day was swept. It does not sync: another sweep finds nothing to do.
func (s *Store) noteStage(d seriesDay, key, stage []byte) error {
	b := s.db.NewBatch()
	defer b.Close()
	left, err := s.keysFrom(s.keys.day(nil, d), after(s.keys.day(nil, d)))
	if err != nil {
		return err
	}
	if len(left) == 0 {
		err = b.Delete(key, nil)
	} else {
		err = b.Set(key, stage, nil)
	}
	if err != nil {
		return err
	}
	return b.Commit(pebbledb.NoSync)
}

// stage appends the key that says how far a day was swept.
func (k keyspace) stage(dst []byte, d seriesDay) []byte {
	return binary.BigEndian.AppendUint32(k.kind(dst, kindStage), uint32(d))
}
