package fakestore

import (
	"context"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

type bucketKey struct {
	minute  wire.Minute
	quarter bool
}

// length of the bucket.
func (k bucketKey) length() time.Duration {
	if k.quarter {
		return store.QuarterMinutes * time.Minute
	}
	return time.Minute
}

func compareBuckets(a, b store.Bucket) int {
	switch {
	case a.Minute != b.Minute:
		return int(a.Minute - b.Minute)
	case a.Quarter == b.Quarter:
		return 0
	case b.Quarter:
		return -1
	}
	return 1
}

// checkBuckets refuses buckets that no aggregator should send.
func (s *Store) checkBuckets(c *store.Commit) error {
	sums, minutes := make(map[int]int64), make(map[wire.Minute]struct{})
	for i, b := range c.Buckets {
		switch {
		case b.Add < 0 || b.Add >= len(c.Adds):
			return s.mistake("bucket %d of add %d, of %d adds", i, b.Add, len(c.Adds))
		case b.Delta == 0:
			return s.mistake("bucket %d: delta 0 for %q", i, c.Adds[b.Add].Counter)
		case b.Minute < 0 || b.Minute >= wire.MinuteOf(wire.MaxTime):
			return s.mistake("bucket %d: minute %d", i, b.Minute)
		}
		if i > 0 && (c.Buckets[i-1].Add > b.Add || c.Buckets[i-1].Add == b.Add && c.Buckets[i-1].Minute >= b.Minute) {
			return s.mistake("bucket %d is out of order, or is listed twice", i)
		}
		sums[b.Add] += b.Delta
		minutes[b.Minute] = struct{}{}
	}
	if most := s.opts.Ring.Minutes; most > 0 && len(minutes) > most {
		return s.overLimit("minutes in a commit", len(minutes), most)
	}
	for add, sum := range sums {
		if sum != c.Adds[add].Delta && !c.Correction {
			return s.mistake("the buckets of add %d sum to %d, and its delta is %d", add, sum, c.Adds[add].Delta)
		}
	}
	return nil
}

// hasBucket reports whether the commit has a bucket of an add.
func hasBucket(c *store.Commit, add int) bool {
	return slices.ContainsFunc(c.Buckets, func(b store.BucketDelta) bool { return b.Add == add })
}

func (s *Store) bucketsLocked(c *store.Commit, at, keep time.Time) {
	for _, b := range c.Buckets {
		a := &c.Adds[b.Add]
		key := shardKey{a.Counter, a.Shard}
		s.changed[key] = at
		if s.opts.Ring.Buckets > 0 && b.Minute >= c.Archive {
			s.addCellLocked(key, b.Minute, int128.Of(b.Delta), at, keep)
		} else {
			// Too old for the ring: the fold itself adds it to the archive.
			s.addBucketLocked(a.Counter, bucketKey{minute: b.Minute}, int128.Of(b.Delta), at, keep)
		}
		if c.Correction {
			continue
		}
		was, _ := s.bucketed[key].newest()
		s.bucketed[key] = s.bucketed[key].set(at, was.Add(int128.Of(b.Delta)), keep)
	}
}

func (s *Store) addBucketLocked(counter string, key bucketKey, delta int128.Int, at, keep time.Time) {
	buckets := s.series[counter]
	if buckets == nil {
		buckets = make(map[bucketKey]history[int128.Int])
		s.series[counter] = buckets
	}
	was, _ := buckets[key].newest()
	buckets[key] = buckets[key].set(at, was.Add(delta), keep)
}

// Series returns the buckets of the counters at the view's moment.
func (v *View) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	s := v.store
	answer, err := s.begin(ctx, Series, nil)
	if err != nil {
		return nil, err
	}
	found := make([][]store.Bucket, len(of))
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := v.pinLocked()
		for i := range of {
			found[i] = s.seriesLocked(of[i].Counter, from, to, at)
		}
		return nil
	})
	return found, err
}

func (s *Store) seriesLocked(counter string, from, to wire.Minute, at time.Time) (found []store.Bucket) {
	sums := make(map[bucketKey]int128.Int)
	for key, h := range s.series[counter] {
		sum, _ := h.at(at)
		sums[key] = sum
	}
	// Ring and archive are of one moment: a move between two would show its sums twice or not at all.
	s.cellsAtLocked(counter, at, func(minute wire.Minute, sum int128.Int) {
		key := bucketKey{minute: minute}
		sums[key] = sums[key].Add(sum)
	})
	for key, sum := range sums {
		if none := (int128.Int{}); sum != none && key.minute >= from && key.minute < to {
			found = append(found, store.Bucket{
				Minute: key.minute, Quarter: key.quarter, Sum: sum,
			})
		}
	}
	slices.SortFunc(found, compareBuckets)
	return found
}

// Bucket adds the buckets of a commit by themselves, for defects.
func (s *Store) Bucket(c *store.Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bucketsLocked(c, s.commitTimeLocked(), s.oldestLocked())
}

// Buckets returns the whole series of a counter.
func (s *Store) Buckets(counter string) []store.Bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seriesLocked(counter, 0, wire.MinuteOf(wire.MaxTime), s.last)
}

// SweepSeries joins and removes each bucket as early as it may.
func (s *Store) SweepSeries(ctx context.Context) error {
	answer, err := s.begin(ctx, SweepSeries, nil)
	if err != nil {
		return err
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		at, keep := s.commitTimeLocked(), s.oldestLocked()
		rules := s.settingsLocked(at).Rules
		for counter := range s.series {
			s.sweepBucketsLocked(counter, rules.KeepOf(counter), at, keep)
		}
		return nil
	})
}

func (s *Store) sweepBucketsLocked(counter string, promised store.Retention, at, keep time.Time) {
	over := func(key bucketKey, promise time.Duration) bool {
		return key.minute.Time().Add(key.length() + promise + store.SeriesSlack).Before(at)
	}
	for key, h := range s.series[counter] {
		sum, _ := h.newest()
		quarter := bucketKey{store.QuarterOf(key.minute), true}
		switch {
		case sum == int128.Int{}:
			continue
		case over(quarter, promised.Quarters):
		case !key.quarter && over(quarter, promised.Minutes):
			s.addBucketLocked(counter, quarter, sum, at, keep)
		default:
			continue
		}
		s.counts.Swept++
		s.series[counter][key] = s.series[counter][key].set(at, int128.Int{}, keep)
	}
}

// dropSeriesLocked removes the series of a counter.
func (s *Store) dropSeriesLocked(counter string, at, keep time.Time) {
	for in := range s.ring[counter] {
		s.dropCellLocked(counter, in, at, keep)
		s.changed[shardKey{counter, in.shard}] = at
	}
	for key, h := range s.series[counter] {
		s.series[counter][key] = h.set(at, int128.Int{}, keep)
	}
}
