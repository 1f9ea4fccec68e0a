package api

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/reader"
)

// keptBeats is for how many beats a snapshot knows the counters that left. A watcher that is
// further behind is dropped. A write ends after WriteTimeout, 10 s by default, so no watcher
// with a prefix gets there.
const keptBeats = 16

// A row is a watched counter.
type row struct {
	reader.Total
	rate  float64 // change a second between its last two totals
	rated bool    // there were two

	added   uint64 // the beat that brought it
	changed uint64 // the last beat with another total or number of shards, or that made or deleted it
	paced   uint64 // the last beat with another rate
}

// A departure is a counter that left, because it was deleted or is beyond the limit.
type departure struct {
	counter string
	beat    uint64
}

// A snapshot is the watched counters after a beat, which is one good read. It never changes: any number
// of watchers show it, however slowly, while the feed makes the next one.
type snapshot struct {
	beat uint64
	// limit is how many counters were looked for, and more is true if others have the prefix.
	limit int
	more  bool
	rows  []row // in the order of the names, or as they were asked for
	gone  []departure
	// forgotten is the last beat whose departures are not in gone.
	forgotten uint64

	pipeline reader.Pipeline
	err      error // of the read; everything else is of the beat before
}

// A reading is the answer to one read.
type reading struct {
	totals []reader.Total
	// listed is true if the names were read too. Otherwise they are those of the reading before.
	listed bool
	more   bool
}

// failed is the snapshot after a read that failed. It is of the beat before: no watcher falls behind for it.
func (b *snapshot) failed(err error) *snapshot {
	next := *b
	next.err = err
	return &next
}

// next is the snapshot after a good read.
func (b *snapshot) next(r reading, limit int, p reader.Pipeline) *snapshot {
	n := &snapshot{beat: b.beat + 1, limit: b.limit, more: b.more, gone: b.gone, forgotten: b.forgotten, pipeline: p}
	if !r.listed && len(b.rows) == len(r.totals) {
		n.rows = make([]row, len(b.rows))
		for i, old := range b.rows {
			n.rows[i] = old.next(r.totals[i], n.beat)
		}
		return n
	}
	n.limit, n.more = limit, r.more
	n.list(b.rows, r.totals)
	return n
}

// list takes the totals in, whose names need not be those of the rows before.
func (b *snapshot) list(before []row, totals []reader.Total) {
	left := make(map[string]row, len(before))
	for _, r := range before {
		left[r.Counter] = r
	}
	b.rows = make([]row, len(totals))
	for i, t := range totals {
		old, known := left[t.Counter]
		if !known {
			b.rows[i] = row{Total: t, added: b.beat, changed: b.beat, paced: b.beat}
			continue
		}
		delete(left, t.Counter)
		b.rows[i] = old.next(t, b.beat)
	}
	b.depart(left)
}

// depart notes the counters that left, and forgets those of keptBeats ago.
func (b *snapshot) depart(left map[string]row) {
	if b.beat > keptBeats {
		b.forgotten = b.beat - keptBeats
	}
	b.gone = slices.DeleteFunc(slices.Clone(b.gone), func(d departure) bool { return d.beat <= b.forgotten })
	for _, name := range slices.Sorted(maps.Keys(left)) {
		b.gone = append(b.gone, departure{name, b.beat})
	}
}

// next is the row with a later total. A cache may give an earlier one, which changes nothing.
func (r row) next(t reader.Total, beat uint64) row {
	if t.AsOf.Before(r.AsOf) {
		return r
	}
	n := r
	n.Total = t
	if t.Total != r.Total.Total || t.Shards != r.Shards || t.Exists != r.Exists || t.Overflow != r.Overflow {
		n.changed = beat
	}
	if between := t.AsOf.Sub(r.AsOf); t.Overflow || r.Overflow {
		n.rate, n.rated = 0, false
	} else if between > 0 {
		n.rate, n.rated = perSecond(t.Total, r.Total.Total, between), true
	}
	if n.rate != r.rate || n.rated != r.rated {
		n.paced = beat
	}
	return n
}

// perSecond is a rate in hundredths. The difference of two totals may not fit 64 bits.
func perSecond(now, before int64, between time.Duration) float64 {
	grown := float64(now - before)
	if (now > before) != (grown > 0) {
		grown = float64(now) - float64(before)
	}
	return math.Round(grown/between.Seconds()*100) / 100
}

// A mark says how much a client has: the state of all counters up to top at a beat. The zero mark
// is for a client without anything.
type mark struct {
	beat uint64
	top  string
}

// noTop is behind every name, as names are UTF-8.
const noTop = "\xff"

// A view is how a watcher sees a snapshot: its first counters, in some form.
type view struct {
	limit                  int
	rates, quoted, limited bool
}

// markOf is the mark of a client that has the snapshot.
func (v view) markOf(b *snapshot) mark {
	if len(b.rows) > v.limit {
		return mark{b.beat, b.rows[v.limit-1].Counter}
	}
	return mark{b.beat, noTop}
}

// news are the rows that a client with the mark does not have in this state.
func (v view) news(b *snapshot, m mark) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for i := range min(len(b.rows), v.limit) {
			r := &b.rows[i]
			if r.changed <= m.beat && (!v.rates || r.paced <= m.beat) && r.Counter <= m.top {
				continue
			}
			if !yield(r) {
				return
			}
		}
	}
}

// removed are the counters that a client with the mark has and that it must forget: they left,
// or others have pushed them beyond the limit.
func (v view) removed(b *snapshot, m mark) (names []string) {
	for _, d := range b.gone {
		if d.beat > m.beat && d.counter <= m.top && !v.shows(b, d.counter) {
			names = append(names, d.counter)
		}
	}
	for i := v.limit; i < len(b.rows) && b.rows[i].Counter <= m.top; i++ {
		if b.rows[i].added <= m.beat {
			names = append(names, b.rows[i].Counter)
		}
	}
	return names
}

// shows reports whether a counter of a prefix, which may have left and come back, is seen.
func (v view) shows(b *snapshot, counter string) bool {
	_, found := slices.BinarySearchFunc(b.rows[:min(len(b.rows), v.limit)], counter, func(r row, name string) int {
		return strings.Compare(r.Counter, name)
	})
	return found
}

// anyNews reports whether an event for the mark would hold a counter.
func (v view) anyNews(b *snapshot, m mark) bool {
	for range v.news(b, m) {
		return true
	}
	return len(v.removed(b, m)) > 0
}

// truncated reports whether more counters have the prefix than the client sees.
func (v view) truncated(b *snapshot) bool { return b.more || len(b.rows) > v.limit }
