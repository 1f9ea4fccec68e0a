package api

import (
	"iter"
	"math"
	"time"

	"github.com/countmill/countmill/reader"
)

// A row is a watched counter.
type row struct {
	reader.Total
	rate  float64 // change a second between its last two totals
	rated bool    // there were two
}

// A snapshot is the watched counters after a good read. It never changes: any number of watchers show it, however slowly, while the
// feed makes the next one. A watcher keeps the one that it showed last, at most for as long as a write may take.
type snapshot struct {
	// limit is how many counters were looked for, and more is true if others have the prefix.
	limit int
	more  bool
	rows  []row // in the order of the names, or as they were asked for

	pipeline reader.Pipeline
	err      error // of the read; everything else is of the read before
}

// A reading is the answer to one read.
type reading struct {
	totals []reader.Total
	// listed is true if the names were read too. Otherwise they are those of the reading before.
	listed bool
	more   bool
}

// failed is the snapshot after a read that failed.
func (b *snapshot) failed(err error) *snapshot {
	next := *b
	next.err = err
	return &next
}

// next is the snapshot after a good read.
func (b *snapshot) next(r reading, limit int, p reader.Pipeline) *snapshot {
	n := &snapshot{limit: b.limit, more: b.more, pipeline: p, rows: make([]row, len(r.totals))}
	if !r.listed && len(b.rows) == len(r.totals) {
		for i := range b.rows {
			n.rows[i] = b.rows[i].next(r.totals[i])
		}
		return n
	}
	n.limit, n.more = limit, r.more
	before := make(map[string]*row, len(b.rows))
	for i := range b.rows {
		before[b.rows[i].Counter] = &b.rows[i]
	}
	for i, t := range r.totals {
		if old := before[t.Counter]; old != nil {
			n.rows[i] = old.next(t)
		} else {
			n.rows[i] = row{Total: t}
		}
	}
	return n
}

// next is the row with a later total. A cache may give an earlier one, which changes nothing.
func (r *row) next(t reader.Total) row {
	between := t.AsOf.Sub(r.AsOf)
	if between < 0 {
		return *r
	}
	n := row{t, r.rate, r.rated}
	if t.Overflow || r.Overflow {
		n.rate, n.rated = 0, false
	} else if between > 0 {
		n.rate, n.rated = perSecond(t.Total, r.Total.Total, between), true
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

// A view is how a watcher sees a snapshot: its first counters, in some form.
type view struct {
	limit                  int
	rates, quoted, limited bool
}

func (v view) of(b *snapshot) []row { return b.rows[:min(len(b.rows), v.limit)] }

// news are the differences of a snapshot to an earlier one: a row that the client does not have in this state, or the name of a
// counter that it must forget, because it left or others have pushed it beyond the limit.
func (v view) news(was, b *snapshot) iter.Seq2[*row, string] {
	return func(yield func(*row, string) bool) {
		old, rows := v.of(was), v.of(b)
		for len(old) > 0 || len(rows) > 0 {
			switch {
			case len(old) > 0 && len(rows) > 0 && old[0].Counter == rows[0].Counter:
				if v.differ(&old[0], &rows[0]) && !yield(&rows[0], "") {
					return
				}
				old, rows = old[1:], rows[1:]
			case len(rows) == 0 || len(old) > 0 && old[0].Counter < rows[0].Counter:
				if !yield(nil, old[0].Counter) {
					return
				}
				old = old[1:]
			default:
				if !yield(&rows[0], "") {
					return
				}
				rows = rows[1:]
			}
		}
	}
}

// differ reports whether a client sees a difference between two states of a counter.
func (v view) differ(old, r *row) bool {
	return old.Total.Total != r.Total.Total || old.Shards != r.Shards || old.Exists != r.Exists || old.Overflow != r.Overflow ||
		v.rates && (old.rate != r.rate || old.rated != r.rated)
}

// anyNews reports whether there is a difference.
func (v view) anyNews(was, b *snapshot) bool {
	for range v.news(was, b) {
		return true
	}
	return false
}

// truncated reports whether more counters have the prefix than the client sees.
func (v view) truncated(b *snapshot) bool { return b.more || len(b.rows) > v.limit }
