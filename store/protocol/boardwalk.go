package protocol

import (
	"cmp"
	"context"
	"hash/maphash"
	"strings"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// In the order of names a look at all sums reads records, looks up the shards that they name, and for a window the days. In the order of
// places it walks over shards or days, and looks up the shards of few counters.

// mostLooked is the most counters whose shards are looked up.
const mostLooked = 20_000

func (w *sumWalk) walk(ctx context.Context) error {
	byName := w.store.limits.ByName
	switch {
	case w.q.To > 0 && byName:
		if err := w.lookUp(ctx, false, func(c *counted) error { return w.wait(ctx, c) }); err != nil {
			return err
		}
		return w.flush(ctx)
	case w.q.To > 0:
		return w.days(ctx)
	case w.q.Groups || byName:
		return w.lookUp(ctx, false, w.emitCounted)
	}
	specials, few, err := w.specials(ctx)
	if err != nil {
		return err
	}
	if few {
		return w.lookUp(ctx, false, w.emitCounted)
	}
	return w.shards(ctx, specials)
}

// wait lets a counter wait for its days.
func (w *sumWalk) wait(ctx context.Context, c *counted) error {
	if c.isHidden() {
		return nil
	}
	if w.waiting = append(w.waiting, *c); len(w.waiting) < w.page {
		return nil
	}
	return w.flush(ctx)
}

// records visits the records that may be of the query. SumsQuery.Has takes as long as the rest, so ask it last.
func (w *sumWalk) records(ctx context.Context, visit func(r *engine.Row) error) error {
	for _, prefix := range w.prefixes() {
		for row, err := range w.store.scan(ctx, w, engine.Range{Kind: kindRecord, Prefix: prefix, Page: w.page}, recordFields...) {
			if err == nil {
				err = w.took(ctx, 1)
			}
			if err == nil {
				err = visit(row)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// A counted is a counter with its record, the sum of its shards, and the part of the sum in the window of the query.
type counted struct {
	name            string
	sum, window     engine.Int
	exists, deleted bool
}

// isHidden reports whether the counter was deleted and has counted nothing since.
func (c *counted) isHidden() bool { return c.deleted && c.sum == engine.Int{} }

func (w *sumWalk) emitCounted(c *counted) error {
	if c.isHidden() || !c.exists {
		return nil
	}
	return w.emit(c.name, c.sum)
}

// lookUp looks up the shards of the counters of the query, or of the deleted ones alone.
func (w *sumWalk) lookUp(ctx context.Context, deleted bool, visit func(*counted) error) error {
	var all []counted
	var keys []engine.Key
	var whose []int
	fields := []engine.FieldID{fieldCount}
	if w.q.To > 0 && w.store.facts.ring {
		fields = []engine.FieldID{engine.All}
	}
	flush := func() error {
		err := w.store.each(ctx, w, keys, fields, func(i int, r *engine.Row) {
			c := &all[whose[i]]
			c.sum, c.window, c.exists = c.sum.Add(r.Int(fieldCount)), c.window.Add(sumOf(r, w.q.From, w.q.To)), c.exists || r.Exists
		})
		for i := 0; i < len(all) && err == nil; i++ {
			err = visit(&all[i])
		}
		if err == nil {
			err = w.took(ctx, len(keys))
		}
		all, keys, whose = all[:0], keys[:0], whose[:0]
		return err
	}
	err := w.records(ctx, func(r *engine.Row) error {
		c := counted{sum: r.Int(fieldRemainder).Sub(r.Int(fieldBaseline)), deleted: r.Int64(fieldDeletedAt) != 0}
		if deleted && !c.deleted || !w.q.Has(r.Key.Name) {
			return nil
		}
		c.name = strings.Clone(r.Key.Name)
		c.exists = r.Int(fieldRemainder) != engine.Int{}
		for n := range r.Int64(fieldShards) {
			keys, whose = append(keys, w.store.shardKey(c.name, int(n))), append(whose, len(all))
		}
		if all = append(all, c); len(keys) < w.page {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// A special is a record that a walk over shards needs: that of a counter that was reset, or that has not one shard.
type special struct {
	baseline engine.Int
	shards   int64
	deleted  bool
}

// specials returns them by hashes of their names, because names of 500 bytes would take too much memory, or few if only few counters have
// records.
func (w *sumWalk) specials(ctx context.Context) (all map[uint64]special, few bool, err error) {
	n := 0
	all = make(map[uint64]special)
	err = w.records(ctx, func(r *engine.Row) error {
		x := special{baseline: r.Int(fieldBaseline), shards: r.Int64(fieldShards), deleted: r.Int64(fieldDeletedAt) != 0}
		is := x != special{shards: 1}
		if !is && n > mostLooked || !w.q.Has(r.Key.Name) {
			return nil
		}
		if n++; is {
			all[maphash.String(w.seed, r.Key.Name)] = x
		}
		return nil
	})
	return all, n <= mostLooked, err
}

// shards walks over all shards, and over the special records beside them. It leaves out shards that no look-up finds, and those
// that the record does not name, as readers do.
func (w *sumWalk) shards(ctx context.Context, specials map[uint64]special) error {
	prefix := w.q.Index.Prefix()
	var at counted     // the counter of the last shards
	var name []byte    // its name
	var record special // of it
	done := func() error {
		if len(name) == 0 || !at.exists {
			return nil
		}
		at.sum = at.sum.Sub(record.baseline)
		if at.deleted = record.deleted; at.isHidden() {
			return nil
		}
		return w.emit(string(name), at.sum)
	}
	for row, err := range w.store.scan(ctx, w, engine.Range{Kind: kindShard, Page: w.page}, fieldCount) {
		if err == nil {
			err = w.took(ctx, 1)
		}
		if err != nil {
			return err
		}
		key := &row.Key
		if !strings.HasPrefix(key.Name, prefix) || w.store.place(key.Name) != key.Place {
			continue
		}
		if key.Name != string(name) {
			if err := done(); err != nil {
				return err
			}
			if at, name = (counted{}), name[:0]; !w.q.Index.Has(key.Name) {
				continue
			}
			var is bool
			name = append(name, key.Name...)
			if record, is = specials[maphash.Bytes(w.seed, name)]; !is {
				record.shards = 1
			}
		}
		if int64(key.Part) < record.shards {
			at.sum, at.exists = at.sum.Add(row.Int(fieldCount)), true
		}
	}
	return done()
}

// days walks over the days of the window side by side. Each has its counters in the same order.
func (w *sumWalk) days(ctx context.Context) error {
	hidden := make(map[uint64]struct{})
	err := w.lookUp(ctx, true, func(c *counted) error {
		if c.isHidden() {
			hidden[maphash.String(w.seed, c.name)] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	from, to := max(w.q.From, 0), min(w.q.To, wire.MinuteOf(wire.MaxTime)+1)
	if from >= to {
		return nil
	}
	days, err := w.view.days(ctx, dayOf(from), dayOf(to-1))
	if err != nil {
		return err
	}
	var all []*walked
	for _, d := range days {
		r := engine.Range{Kind: kindDay, From: engine.Key{Place: dayPlace(d)}, To: engine.Key{Place: dayPlace(d + 1)}, Page: w.page}
		x := &walked{Rows: w.Scan(ctx, r, engine.All)}
		defer x.Close()
		if err := x.next(); err != nil {
			return err
		}
		all = append(all, x)
	}
	var name []byte
	for {
		var least *walked
		for _, x := range all {
			if x.row != nil && (least == nil || x.compare(least.place, least.row.Key.Name) < 0) {
				least = x
			}
		}
		if least == nil {
			return nil
		}
		place := least.place
		name = append(name[:0], least.row.Key.Name...)
		_, gone := hidden[maphash.Bytes(w.seed, name)]
		gone = gone || !w.q.Has(string(name))
		total := engine.Int{}
		for _, x := range all {
			if x.row == nil || x.compare(place, string(name)) != 0 {
				continue
			}
			if !gone {
				total = total.Add(sumOf(x.row, from, to))
			}
			if err := cmp.Or(w.took(ctx, 1), x.next()); err != nil {
				return err
			}
		}
		if gone || total == (engine.Int{}) {
			continue
		}
		if err := w.emit(string(name), total); err != nil {
			return err
		}
	}
}

// A walked is a scan of a day.
type walked struct {
	engine.Rows
	row   *engine.Row // nil at the end
	place uint64      // of the row, without the day
}

func (x *walked) next() error {
	if x.row = x.Next(); x.row == nil {
		return x.Err()
	}
	x.place = x.row.Key.Place << dayBits
	return notBad(x.row)
}

func (x *walked) compare(place uint64, name string) int {
	return cmp.Or(cmp.Compare(x.place, place), strings.Compare(x.row.Key.Name, name))
}

// sumOf sums the buckets of a row that begin at from or later and before to.
func sumOf(r *engine.Row, from, to wire.Minute) (sum engine.Int) {
	for _, f := range r.Fields {
		if m, _, ok := slotOf(f.ID); ok && m >= from && m < to {
			sum = sum.Add(f.Value)
		}
	}
	return sum
}
