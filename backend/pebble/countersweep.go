package pebble

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/wire"
)

const (
	// SweepCounters removes a counter only if sweepRounds calls in a row have found it deleted. The
	// calls are an hour apart, and an aggregator remembers a record for an hour. After four calls every
	// aggregator has therefore forgotten the record. The count is kept in this process: when the
	// process is frozen both stop, and setting a clock changes neither. The lock between folds and
	// sweeps is not enough: a fold does not grow a counter whose record its aggregator remembers.
	sweepRounds = 4
	// sweepRound is the most counters that one call examines. Later calls examine the rest.
	sweepRound = 10_000
	// sweepLot is the number of counters that are examined while folds wait.
	sweepLot = 20
)

// A deletion is one of a counter: rounds of an earlier one say nothing about who remembers its record now.
type deletion struct {
	counter string
	at      int64 // in nanoseconds since 1970
}

// SweepCounters removes counters that it has found deleted in sweepRounds calls in a row.
func (s *Store) SweepCounters(ctx context.Context, after time.Duration) (removed int, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.closing.RUnlock()
	names, err := s.due(ctx, after)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return 0, err
	}
	found := make(map[deletion]int)
	for lot := range slices.Chunk(names, sweepLot) {
		n, err := s.sweepLot(lot, found, after)
		if removed += n; err != nil {
			return removed, err
		}
		if err := ctx.Err(); err != nil {
			return removed, err
		}
	}
	s.sweeping.Lock()
	s.condemned = found
	s.sweeping.Unlock()
	if removed > 0 {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "deleted counters removed", slog.Int("counters", removed))
	}
	return removed, nil
}

// due lists the counters of deletion records that are at least that old. Some of those counters may
// exist again.
func (s *Store) due(ctx context.Context, after time.Duration) (names []string, err error) {
	by, rules := s.moments.next().Add(-after), s.settings.rules()
	err = s.scan(kindGone, "", func(name string, _ []byte) (bool, error) {
		r, _, err := getRecord(s.db, s.keys.named(nil, kindRecord, name))
		if !r.DeletedAt.After(by) && !rules.Kept(name) {
			names = append(names, name)
		}
		return len(names) < sweepRound, cmp.Or(err, ctx.Err())
	})
	return names, err
}

// sweepLot examines counters again, and counts in found how often each one was deleted.
func (s *Store) sweepLot(names []string, found map[deletion]int, after time.Duration) (removed int, err error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	b := s.db.NewBatch()
	defer b.Close()
	by, rules := s.moments.next().Add(-after), s.settings.rules()
	for _, name := range names {
		r, exists, err := getRecord(s.db, s.keys.named(nil, kindRecord, name))
		if err != nil {
			return 0, err
		}
		if !exists || r.DeletedAt.IsZero() { // the counter exists again
			if err := b.Delete(s.keys.named(nil, kindGone, name), nil); err != nil {
				return 0, err
			}
			continue
		}
		// ChangeRules has the lock for writing, so no index begins before this lot is done.
		if r.DeletedAt.After(by) || rules.Kept(name) {
			continue
		}
		d := deletion{name, r.DeletedAt.UnixNano()}
		if found[d] = s.condemned[d] + 1; found[d] < sweepRounds {
			continue
		}
		gone, err := s.removeCounter(b, name, r)
		if err != nil {
			return 0, err
		}
		if gone {
			removed++
			continue
		}
		if err := b.Merge(s.keys.named(nil, kindRecord, name), encodeRecord(nil, r.shards), nil); err != nil {
			return 0, err
		}
	}
	if b.Empty() {
		return 0, nil
	}
	return removed, s.commit(b)
}

// removeCounter removes a deleted counter unless it has counted something since. Such a counter exists
// again, and only its deletion record goes.
func (s *Store) removeCounter(b *pebbledb.Batch, name string, r record) (bool, error) {
	remainder := s.keys.named(nil, kindRemainder, name) // of a group
	total, _, err := getSum(s.db, remainder)
	if err != nil {
		return false, err
	}
	keys := [][]byte{s.keys.named(nil, kindRecord, name), s.keys.named(nil, kindGone, name), remainder}
	for n := range r.shards {
		key := s.keys.shard(nil, wire.Order(name), name, n)
		sum, exists, err := getShard(s.db, key)
		if err != nil {
			return false, err
		}
		if total = total.plus(sum.count); exists {
			keys = append(keys, key)
		}
	}
	if total != fromExact(r.Baseline) {
		return false, nil
	}
	for _, key := range keys {
		if err := b.Delete(key, nil); err != nil {
			return false, err
		}
	}
	return true, s.removeSeries(b, name)
}
