package protocol

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill/store/engine"
)

const (
	// Where a process is alone, SweepCounters removes a counter only if sweepRounds calls in a row have found it deleted. The calls are
	// an hour apart, and an aggregator remembers a record for an hour. So every aggregator has forgotten the record, even with a
	// wrong clock. Elsewhere the database's clock says that enough time has passed (store.SweepAfter).
	sweepRounds = 4
	// sweepPage is the most counters that one call looks at, where a process is alone. Later calls look at the rest.
	sweepPage = 10_000
	// sweepErrors in a row end a sweep.
	sweepErrors = 3
)

// Rounds are the deletions that the last sweep of this process has found, and how many sweeps in a row have. A counter that was counted and
// deleted again is another deletion.
type rounds struct {
	mu    sync.Mutex
	found map[deletion]int // never changed, but replaced
}

type deletion struct {
	counter string
	at      int64
}

// SweepCounters looks at the counters that are deleted.
func (s *Store) SweepCounters(ctx context.Context, after time.Duration) (removed int, err error) {
	defer s.changes.Add(1)
	before, found := s.cfg.Clock(), make(map[deletion]int)
	if s.limits.Exclusive {
		before = s.engine.Moment() // deletions have moments, which may be ahead of the clock
	}
	v := s.view()
	m, err := s.metaIn(ctx, v)
	v.Close()
	if err != nil {
		return 0, err
	}
	inARow, whole := 0, false
	defer func() {
		s.rounds.mu.Lock()
		defer s.rounds.mu.Unlock()
		for d, n := range s.rounds.found {
			if !whole && found[d] == 0 { // it was not looked at
				found[d] = n
			}
		}
		s.rounds.found = found
	}()
	for next := ""; len(found) < sweepPage; {
		var keys []engine.Key
		var problem error
		if keys, next, problem = s.engine.Due(ctx, kindRecord, before.Add(-after).UnixMicro(), next, s.limits.Keys); problem != nil {
			return removed, cmp.Or(err, problem)
		}
		keys = slices.DeleteFunc(keys, func(key engine.Key) bool { return m.Settings.Rules.Kept(key.Name) }) // they would keep others out of the page
		if keys, problem = s.condemned(ctx, keys, found); problem != nil {
			return removed, cmp.Or(err, problem)
		}
		for _, key := range keys {
			gone, problem := s.sweepCounter(ctx, key.Name, after)
			switch {
			case problem != nil:
				inARow, err = inARow+1, cmp.Or(err, problem)
			case gone:
				inARow, removed = 0, removed+1
			}
			if inARow == sweepErrors || ctx.Err() != nil {
				return removed, cmp.Or(err, ctx.Err())
			}
		}
		if next == "" {
			break
		}
	}
	whole = true
	return removed, err
}

// condemned counts the deletions, where a process is alone, and returns the counters that may be removed.
func (s *Store) condemned(ctx context.Context, keys []engine.Key, found map[deletion]int) (now []engine.Key, err error) {
	if !s.limits.Exclusive {
		return keys, nil
	}
	s.rounds.mu.Lock()
	before := s.rounds.found
	s.rounds.mu.Unlock()
	v := s.view()
	defer v.Close()
	err = s.each(ctx, v, keys, []engine.FieldID{fieldDeletedAt}, func(i int, r *engine.Row) {
		d := deletion{keys[i].Name, r.Int64(fieldDeletedAt)}
		if found[d] = before[d] + 1; found[d] >= sweepRounds {
			now = append(now, keys[i])
		}
	})
	return now, err
}

// sweepCounter removes a counter's record, shards and series. If it has counted something since its deletion, it exists again.
func (s *Store) sweepCounter(ctx context.Context, counter string, after time.Duration) (gone bool, err error) {
	for more := true; more; {
		if gone, more, err = s.sweepPart(ctx, counter, after); err != nil {
			return false, fmt.Errorf("sweep counter %q: %w", counter, err)
		}
	}
	if gone {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "deleted counter removed", slog.String("counter", counter))
	}
	return gone, nil
}

// sweepPart removes all of a counter in one transaction that reads its record and its shards. If it has too many days for
// that, it removes some of them, and there is more. A fold, a move or a growth in between makes it fail.
func (s *Store) sweepPart(ctx context.Context, counter string, after time.Duration) (gone, more bool, err error) {
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		gone, more = false, false
		// An index or a journal that begins meanwhile changes the meta row.
		m, err := s.metaIn(ctx, tx)
		if err != nil || m.Settings.Rules.Kept(counter) {
			return err
		}
		rows, err := s.get(ctx, tx, []engine.Key{recordKey(counter)}, recordFields...)
		if err != nil {
			return err
		}
		record := &rows[0]
		deleted := timeOf(record.Int64(fieldDeletedAt))
		if deleted.IsZero() || deleted.After(s.now(tx).Add(-after)) {
			return nil
		}
		keys := make([]engine.Key, record.Int64(fieldShards))
		for n := range keys {
			keys[n] = s.shardKey(counter, n)
		}
		if s.limits.Rows > 0 && len(keys) >= s.limits.Rows {
			return nil // no transaction takes it: it stays hidden
		}
		shards, err := s.get(ctx, tx, keys, fieldCount)
		if err != nil {
			return err
		}
		sum := record.Int(fieldRemainder)
		for i := range shards {
			sum = sum.Add(shards[i].Int(fieldCount))
		}
		if sum != record.Int(fieldBaseline) {
			tx.Change(growth(counter, 1))
			return nil
		}
		// A fold or a move that adds a day changes a shard. So the days of a view that is opened now are all, or this fails.
		days, err := s.daysOf(ctx, counter)
		if err != nil {
			return err
		}
		all := append(days, recordKey(counter))
		for i := range shards {
			if shards[i].Exists {
				all = append(all, keys[i])
			}
		}
		if more = s.limits.Rows > 0 && len(all) > s.limits.Rows; more {
			all = all[:min(len(days), s.limits.Rows)]
		}
		remove(tx, all...)
		gone = !more
		return nil
	})
	return gone, more, err
}

// daysOf returns the days of a counter that exist now.
func (s *Store) daysOf(ctx context.Context, counter string) (keys []engine.Key, err error) {
	v := s.view()
	defer v.Close()
	days, err := v.dayKeys(ctx, []string{counter}, 0, lastDay)
	if err != nil || !s.facts.daysFirst { // then they come from a scan
		return slices.Concat(days...), err
	}
	err = s.each(ctx, v, days[0], nil, func(i int, r *engine.Row) {
		if r.Exists {
			keys = append(keys, days[0][i])
		}
	})
	return keys, err
}

// remove deletes rows.
func remove(tx engine.Tx, keys ...engine.Key) {
	for _, c := range deletes(keys...) {
		tx.Change(&c)
	}
}

func deletes(keys ...engine.Key) []engine.Change {
	changes := make([]engine.Change, len(keys))
	for i, key := range keys {
		changes[i] = engine.Change{Key: key, Op: engine.Delete}
	}
	return changes
}
