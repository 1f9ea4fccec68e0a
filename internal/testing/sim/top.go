package sim

import (
	"context"
	"slices"
	"strings"
	"time"

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
	window, final := []string{"", "", "", "today", "1h", "this-week", "this-month"}[rc.rng.IntN(7)], rc.final
	if q.Window = must(reader.ParseWindow(window, time.UTC)); window == "" {
		q.Groups = rc.rng.IntN(4) == 0
	}
	var top reader.Top
	o := rc.newOp("top", func(o *op) {
		if !o.p.dead && o.err == nil && (window == "" || final && !strings.HasPrefix(window, "this")) {
			rc.totals.checkTop(&x, &q, window, &top)
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

// checkTop: a leaderboard has the counters, or the groups, with the largest totals of its moment, in order. Counters at 0 may be missing: they
// may have been removed since. A board of a window has sums of minutes.
func (to *totalOracle) checkTop(x *store.Index, q *reader.TopQuery, window string, top *reader.Top) {
	if window != "" && len(to.db.swept) > 0 {
		return
	}
	of := store.SumsQuery{Index: x, Groups: q.Groups}
	var all []board.Ranked
	for counter := range to.folded {
		if countmill.IsGroup(counter) != q.Groups || !of.Has(counter) {
			continue
		}
		total, exists := to.db.servedAt(counter, top.CompleteAsOf)
		if window != "" {
			total = to.series.inWindow(window, counter, top.CompleteAsOf)
		}
		if exists {
			all = append(all, board.Ranked{Counter: counter, Sum: total})
		}
	}
	slices.SortFunc(all, board.Compare)
	positive := max(0, slices.IndexFunc(append(all, board.Ranked{}), func(r board.Ranked) bool { return r.Sum <= 0 }))
	for i, want := range all[:min(positive, q.N)] {
		rank := 1 + slices.IndexFunc(all, func(r board.Ranked) bool { return r.Sum == want.Sum })
		if i >= len(top.Top) || top.Top[i].Ranked != want || top.Top[i].Rank != rank {
			to.violate("a board of %s (%s) as of %s has %v, and place %d is %s with %d, at rank %d", x.Name, window, top.CompleteAsOf.Format(clockFormat), top.Top, i+1, want.Counter, want.Sum, rank)
			return
		}
	}
	to.Boards++
}
