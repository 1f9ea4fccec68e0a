package protocol

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// mostMoved is the most buckets of a move.
const mostMoved = 200

// MoveSeries moves the buckets of the shards that folds of this process have found crowded. Several processes may find the
// same shard: the first one moves it.
func (s *Store) MoveSeries(ctx context.Context) (moved int, err error) {
	if s.closed.Load() {
		return 0, fmt.Errorf("%w: the store is closed", store.ErrNotApplied)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	shards := s.crowded.take()
	if len(shards) == 0 {
		return 0, nil
	}
	// Not in each transaction: a move by older rules only makes a sweep look at the day earlier or later.
	v := s.view()
	m, err := s.metaIn(ctx, v)
	v.Close()
	if err != nil {
		for k := range shards {
			s.crowded.note(k)
		}
		return 0, err
	}
	inARow := 0
	for _, k := range slices.SortedFunc(maps.Keys(shards), func(a, b store.Key) int { return cmp.Or(strings.Compare(a.Counter, b.Counter), a.Shard-b.Shard) }) {
		if inARow == sweepErrors || ctx.Err() != nil {
			s.crowded.note(k) // for the next call
			continue
		}
		did, problem := s.moveShard(ctx, k, m.Settings.Rules)
		switch {
		case problem != nil:
			inARow, err = inARow+1, fmt.Errorf("move the series of counter %q: %w", k.Counter, problem)
			s.crowded.note(k)
		case did:
			inARow, moved = 0, moved+1
		}
	}
	return moved, err
}

// moveShard moves buckets in one transaction that reads them. A fold in between makes it fail, or comes after it and makes
// its bucket anew.
func (s *Store) moveShard(ctx context.Context, k store.Key, rules *store.Rules) (did bool, err error) {
	key := s.shardKey(k.Counter, k.Shard)
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		did = false
		rows, err := s.get(ctx, tx, []engine.Key{key}, engine.All)
		if err != nil || rows[0].Int64(fieldBuckets) <= int64(s.cfg.Ring.Buckets) {
			return err // another process has moved it
		}
		buckets := slices.Clone(rows[0].Fields)
		buckets = slices.DeleteFunc(buckets, func(f engine.Field) bool { _, _, ok := slotOf(f.ID); return !ok })
		moved := buckets[:min(len(buckets), mostMoved)]
		shard := engine.Change{Key: key, Op: engine.Update, Set: []engine.Field{field(fieldBuckets, int64(len(buckets)-len(moved)))}}
		for _, f := range moved {
			shard.Unset = append(shard.Unset, f.ID)
		}
		tx.Change(&shard)
		// The shard loses the sums that the days gain.
		keep := rules.KeepOf(k.Counter)
		for len(moved) > 0 {
			d := dayOfField(moved[0].ID)
			n := 1
			for n < len(moved) && dayOfField(moved[n].ID) == d {
				n++
			}
			tx.Change(&engine.Change{Key: s.dayKey(k.Counter, d), Set: s.dueAt(joinsAt(d, keep)), Add: moved[:n]})
			moved = moved[n:]
		}
		did = true
		return nil
	})
	return did, err
}

func dayOfField(id engine.FieldID) day {
	m, _, _ := slotOf(id)
	return dayOf(m)
}

// dueAt sets the due of a day; where days are first they have none.
func (s *Store) dueAt(m wire.Minute) []engine.Field {
	if s.facts.daysFirst {
		return nil
	}
	return []engine.Field{field(fieldDue, int64(m))}
}

// joinsAt is when the minutes of a day are kept no longer; removesAt is when its quarter hours are.
func joinsAt(d day, keep store.Retention) wire.Minute { return endOf(d, keep.Minutes) }

func removesAt(d day, keep store.Retention) wire.Minute { return endOf(d, keep.Quarters) }

func endOf(d day, keep time.Duration) wire.Minute {
	return (d + 1).first() + wire.Minute((keep+store.SeriesSlack)/time.Minute)
}

func isOver(m wire.Minute, now time.Time) bool { return m.Time().Before(now) }

const (
	// seriesLot is the number of days that one transaction of a sweep reads and writes.
	seriesLot = 50
	// seriesPage is the number of days that a view of a sweep lists.
	seriesPage = 1000
)

// SweepSeries looks at the days of which something is kept no longer. Several processes may call it at once.
func (s *Store) SweepSeries(ctx context.Context) error {
	defer s.changes.Add(1)
	if s.facts.daysFirst {
		return s.sweepByDay(ctx)
	}
	var err error
	inARow := 0
	for next := ""; ; {
		var keys []engine.Key
		var problem error
		keys, next, problem = s.engine.Due(ctx, kindDay, int64(wire.MinuteOf(s.cfg.Clock())), next, s.limits.Keys)
		if problem != nil {
			return problem
		}
		for lot := range slices.Chunk(keys, seriesLot) {
			if _, problem := s.sweepDays(ctx, lot); problem != nil {
				inARow, err = inARow+1, cmp.Or(err, problem)
			} else {
				inARow = 0
			}
			if inARow == sweepErrors || ctx.Err() != nil {
				return cmp.Or(err, ctx.Err())
			}
		}
		if next == "" {
			return err
		}
	}
}

// sweepDays joins and removes the sums that the rules, which it reads too, promise no longer, and returns how many of the days are
// left.
func (s *Store) sweepDays(ctx context.Context, lot []engine.Key) (left int, err error) {
	// A soft commit is enough: before and after it the sums are the same, and another sweep repeats it.
	err = s.transact(ctx, true, func(tx engine.Tx) error {
		left = 0
		m, err := s.metaIn(ctx, tx)
		if err != nil {
			return err
		}
		rows, err := s.get(ctx, tx, lot, engine.All)
		if err != nil {
			return err
		}
		now := s.sweepTime(tx.Now())
		for i := range rows {
			c := s.sweptDay(&rows[i], m.Settings.Rules, now)
			if c != nil {
				tx.Change(c)
			}
			if rows[i].Exists && (c == nil || c.Op != engine.Delete) {
				left++
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("sweep %d days of series: %w", len(lot), err)
	}
	return left, nil
}

// sweptDay makes the change of a day, or nil if it stays as it is.
func (s *Store) sweptDay(r *engine.Row, rules *store.Rules, now time.Time) *engine.Change {
	if !r.Exists {
		return nil
	}
	d, keep := day(r.Key.Part), rules.KeepOf(r.Key.Name)
	if isOver(removesAt(d, keep), now) {
		return &engine.Change{Key: r.Key, Op: engine.Delete}
	}
	c := &engine.Change{Key: r.Key, Op: engine.Update}
	due := joinsAt(d, keep)
	if isOver(due, now) {
		join(c, r)
		due = removesAt(d, keep)
	}
	if r.Int64(fieldDue) != int64(due) {
		c.Set = s.dueAt(due)
	}
	if len(c.Unset)+len(c.Set) == 0 {
		return nil
	}
	return c
}

// join moves minutes to their quarter hours, of which a day has 96.
func join(c *engine.Change, r *engine.Row) {
	for _, f := range r.Fields {
		m, quarter, ok := slotOf(f.ID)
		if !ok || quarter {
			continue
		}
		to := fieldQuarter + engine.FieldID(store.QuarterOf(m))
		if n := len(c.Add); n == 0 || c.Add[n-1].ID != to {
			c.Add = append(c.Add, engine.Field{ID: to})
		}
		c.Unset = append(c.Unset, f.ID)
		sum := &c.Add[len(c.Add)-1].Value
		*sum = sum.Add(f.Value)
	}
}

// sweepByDay looks at each day once for every retention that has ended for the whole day. A row of its own says how far a day was
// swept, so a call without work costs a seek for each day. Folds go on: later sums of a day wait for the next
// retention that ends.
func (s *Store) sweepByDay(ctx context.Context) error {
	over, err := s.daysOver(ctx)
	for i := range over { // days beside a damaged one go all the same
		err = cmp.Or(err, s.sweepDayRows(ctx, &over[i]))
	}
	return err
}

// daysOver returns the changes of the rows of days that have work. The part of a key is the day.
func (s *Store) daysOver(ctx context.Context) (over []engine.Change, err error) {
	v := s.view()
	defer v.Close()
	m, err := s.metaIn(ctx, v)
	if err != nil {
		return nil, err
	}
	now := s.sweepTime(v.At())
	days, err := v.days(ctx, 0, lastDay)
	var keys []engine.Key
	for _, d := range days {
		if stage, ok := stageOf(d, m.Settings.Rules, now); ok {
			keys = append(keys, engine.Key{Kind: kindStage, Name: "day", Part: uint32(d)})
			over = append(over, engine.Change{Key: keys[len(keys)-1], Data: stage})
		}
	}
	n := 0
	readErr := s.each(ctx, v, keys, []engine.FieldID{engine.Data}, func(i int, r *engine.Row) {
		if !bytes.Equal(r.Data, over[i].Data) {
			over[n], n = over[i], n+1
		}
	})
	return over[:n], cmp.Or(err, readErr)
}

// stageOf identifies the work of a sweep of a day: the promises of the rules that are over. over is false if none is.
func stageOf(d day, rules *store.Rules, now time.Time) (stage []byte, over bool) {
	h := fnv.New64a()
	if rules == nil {
		return h.Sum(nil), true
	}
	for _, r := range rules.Series {
		joins, removes := isOver(joinsAt(d, r.Keep), now), isOver(removesAt(d, r.Keep), now)
		over = over || joins
		fmt.Fprintf(h, "%q %s %t %t;", r.Pattern, r.Keep, joins, removes)
	}
	return h.Sum(nil), over
}

// sweepDayRows sweeps all rows of a day, page by page, and notes it. If nothing is left of the day, or some rows are not swept, it notes nothing.
func (s *Store) sweepDayRows(ctx context.Context, stage *engine.Change) (err error) {
	d := day(stage.Key.Part)
	r := engine.Range{Kind: kindDay, From: engine.Key{Place: dayPlace(d)}, To: engine.Key{Place: dayPlace(d + 1)}, Page: seriesPage}
	inARow := 0
	for left := false; ; {
		v := s.view()
		keys, problem := v.keys(ctx, r, r.Page)
		v.Close()
		if problem != nil {
			return cmp.Or(err, problem)
		}
		for lot := range slices.Chunk(keys, seriesLot) {
			n, problem := s.sweepDays(ctx, lot)
			if left = left || n > 0; problem == nil {
				inARow = 0
			} else if err, inARow = cmp.Or(err, problem), inARow+1; inARow == sweepErrors {
				return err
			}
		}
		if len(keys) > 0 {
			r.From, r.After = keys[len(keys)-1], true
		}
		if len(keys) < seriesPage {
			if err != nil {
				return err
			}
			if !left {
				stage = &engine.Change{Key: stage.Key, Op: engine.Delete}
			}
			return s.commit(ctx, true, []engine.Change{*stage})
		}
	}
}
