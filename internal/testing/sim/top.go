package sim

import (
	"context"
	"slices"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
)

// boardRate is how many rows a second a scan for a leaderboard may read, where they cost money.
const boardRate = 1000

// askTop asks a reader for the best counters of an index, several times one after the other: later answers come from the same board.
func (rc *readClients) askTop(p *proc, times int) {
	x := pick(rc.rng, rc.indexed.indexes)
	q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: x.Name}, N: 1 + rc.rng.IntN(20)}
	var top reader.Top
	o := rc.newOp("top", func(o *op) {
		if !o.p.dead && o.err == nil {
			rc.totals.checkTop(&x, q.N, &top)
		}
		if times > 1 && !p.dead {
			rc.askTop(p, times-1)
		}
	})
	rc.ask(o, p, func(ctx context.Context) (err error) {
		top, err = p.rdr.Top(ctx, q)
		return err
	})
}

// checkTop: a leaderboard has the counters with the largest totals of its moment, in order. Counters at 0 may be missing: they may have been
// removed since.
func (to *totalOracle) checkTop(x *store.Index, n int, top *reader.Top) {
	var all []board.Ranked
	for counter := range to.folded {
		if total, exists := to.db.servedAt(counter, top.CompleteAsOf); exists && x.Has(counter) && !countmill.IsGroup(counter) {
			all = append(all, board.Ranked{Counter: counter, Sum: total})
		}
	}
	slices.SortFunc(all, board.Compare)
	positive := max(0, slices.IndexFunc(append(all, board.Ranked{}), func(r board.Ranked) bool { return r.Sum <= 0 }))
	for i, want := range all[:min(positive, n)] {
		rank := 1 + slices.IndexFunc(all, func(r board.Ranked) bool { return r.Sum == want.Sum })
		if i >= len(top.Top) || top.Top[i].Ranked != want || top.Top[i].Rank != rank {
			to.violate("a board of %s as of %s has %v, and place %d is %s with %d, at rank %d", x.Name, top.CompleteAsOf.Format(clockFormat), top.Top, i+1, want.Counter, want.Sum, rank)
			return
		}
	}
	to.Boards++
}
