package sim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// look asks a process for something that needs no state of its own. check compares the answer with what oracles know of its moment.
func (rc *readClients) look(kind string, p *proc, do func(ctx context.Context) error, check func()) {
	rc.ask(rc.newOp(kind, func(o *op) {
		if !o.p.dead && o.err == nil {
			check()
		}
	}), p, do)
}

// lookAt looks at one thing that totals and pages of journals do not show.
func (rc *readClients) lookAt() {
	lives := rc.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	switch p := pick(rc.rng, lives); rc.rng.IntN(7) {
	case 0, 1:
		rc.askSeries(p)
	case 2:
		rc.verify(p)
	case 3:
		rc.showLetters(p)
	case 4:
		rc.changeRule(p)
	case 5:
		rc.askInVain(p)
	default:
		rc.showIndexes(p)
	}
}

// lookLast looks at all of it when nothing moves any more.
func (rc *readClients) lookLast(p *proc) {
	rc.askSeries(p)
	rc.verify(p)
	rc.showLetters(p)
	rc.showIndexes(p)
}

// seriesReach is more than the age of any event, and more than any clock is ahead.
const seriesReach = 60 * 24 * time.Hour

// askSeries asks for the series of a counter: for all of it in long rows, or for the last hours in short ones.
func (rc *readClients) askSeries(p *proc) {
	counter, now, final := pick(rc.rng, counters[:2+rc.shape.counters]), rc.wall().UTC(), rc.final
	q := reader.SeriesQuery{Counters: []string{counter}, From: rc.began.UTC().Add(-seriesReach), To: now.Add(seriesReach)}
	whole := rc.rng.IntN(2) == 0
	if q.Step = must(reader.ParseStep(pick(rc.rng, []string{"1d", "1w", "1mo", "1y"}))); !whole {
		q.From, q.To, q.Step = now.Add(-5*time.Hour), now.Add(time.Hour), must(reader.ParseStep(pick(rc.rng, []string{"1m", "5m", "15m", "1h"})))
	}
	var got reader.Series
	rc.look("series", p, func(ctx context.Context) (err error) {
		got, err = p.rdr.Series(ctx, q)
		return err
	}, func() { rc.series.checkAnswer(counter, &got, whole, final) })
}

// checkAnswer: the rows of all time have all that was folded by the moment of the answer. When nothing moves any more, each row has
// the sum of its minutes.
func (so *seriesOracle) checkAnswer(counter string, got *reader.Series, whole, final bool) {
	_, swept := so.db.swept[counter]
	switch _, exists := so.db.servedAt(counter, got.AsOf); {
	case !so.ruled(counter):
		so.violate("a reader shows a series of %s, which has none", counter)
		return
	case swept, !exists:
		return
	}
	var sum int64
	for i := range got.Rows {
		row := &got.Rows[i]
		sum += row.Value
		var want int64
		for minute, n := range so.folded[counter] {
			if at := minute.Time(); !at.Before(row.Time) && at.Before(row.End) {
				want += n
			}
		}
		if final && !row.Partial && row.Value != want {
			so.violate("the series of %s has %d from %s to %s, and %d were folded", counter, row.Value, row.Time.Format(clockFormat), row.End.Format(clockFormat), want)
		}
	}
	if folded := so.db.totalAt(counter, got.AsOf); whole && sum != folded {
		so.violate("the series of %s sums to %d as of %s, when %d were folded", counter, sum, got.AsOf.Format(clockFormat), folded)
	}
}

// verify has somebody verify the database: nothing in it is ever wrong.
func (rc *readClients) verify(p *proc) {
	s := rc.db.storeOf(p, nil)
	v, limit := admin.NewVerifier(s, s).CompareGroups(s), []int{4, 1000}[rc.rng.IntN(2)]
	var found []admin.Problem
	rc.look("verify", p, func(ctx context.Context) error {
		for from, more := "", true; more; more = from != "" {
			page, err := v.Page(ctx, "", from, limit, false)
			if err != nil {
				return err
			}
			found, from = append(found, page.Problems...), page.Next
		}
		return nil
	}, func() {
		for i := range found {
			rc.violate("a verifier finds %+v", found[i])
		}
	})
}

// showLetters lists dead letters, and shows the first.
func (rc *readClients) showLetters(p *proc) {
	l := clock.With(admin.NewDeadLetters(rc.db.storeOf(p, nil)), &clock.Env{Wall: p.wall})
	var page admin.DeadLetterPage
	var shown admin.DeadLetter
	var found bool
	rc.look("letters", p, func(ctx context.Context) (err error) {
		if page, err = l.List(ctx, "", 3); err == nil && len(page.DeadLetters) > 0 {
			shown, _, found, err = l.Show(ctx, page.DeadLetters[0].Key)
		}
		return err
	}, func() {
		for i := range page.DeadLetters {
			if _, ok := rc.db.buried[page.DeadLetters[i].Key]; !ok {
				rc.violate("a list has the letter %s, which never was", page.DeadLetters[i].Key)
			}
		}
		// A letter that can be read may have been written again meanwhile, with another head.
		if was := rc.db.buried[shown.Key]; found && bytes.HasPrefix(was.Payload, []byte("\xff")) && !bytes.Equal(shown.Payload, was.Payload) {
			rc.violate("the letter %s is shown with something else", shown.Key)
		}
	})
}

// showIndexes shows the states of all indexes: nothing was folded without a complete one.
func (rc *readClients) showIndexes(p *proc) {
	var states []admin.IndexState
	rc.look("indexes", p, func(ctx context.Context) (err error) {
		if states, _, err = p.adm.Indexes(ctx); err == nil && rc.indexed != nil {
			_, err = p.adm.Index(ctx, rc.indexed.indexes[0].Name)
		}
		return err
	}, func() {
		for i := range states {
			if states[i].Corrected > 0 {
				rc.violate("%d groups of index %s were corrected", states[i].Corrected, states[i].Name)
			}
		}
	})
}

// changeRule changes the rule of counters that nobody counts, or how long counted ones keep minutes. So rules change under all work,
// and a sweep joins minutes by other rules than the one before.
func (rc *readClients) changeRule(p *proc) {
	pattern, n, keep := pick(rc.rng, append([]string{"unused:*", "unused:x"}, rc.rules...)), rc.rng.IntN(4), keepForAll
	if slices.Contains(rc.rules, pattern) {
		n = 3
		keep.Minutes *= time.Duration(1 + rc.rng.IntN(6)) // never shorter than readers ask for
	} else {
		keep.Quarters /= time.Duration(1 + rc.rng.IntN(2))
	}
	var set store.Settings
	rc.look("rule", p, func(ctx context.Context) (err error) {
		switch n {
		case 0:
			set, err = p.adm.RemoveRule(ctx, store.KindSeries, pattern)
		case 1:
			set, err = p.adm.FillSeries(ctx, pattern, store.Period{From: rc.began.Add(-seriesReach), To: rc.began})
		default:
			set, err = p.adm.AddRule(ctx, store.KindSeries, pattern, keep)
		}
		return err
	}, func() {
		has := slices.ContainsFunc(set.Rules.Series, func(r store.Rule) bool { return r.Pattern == pattern && r.Ended.IsZero() })
		if has != (n > 0) {
			rc.violate("after a change of the rule %s it is there: %t", pattern, has)
		}
	})
}

// askInVain makes requests that nobody may accept.
func (rc *readClients) askInVain(p *proc) {
	s := rc.db.storeOf(p, nil)
	accepted := -1
	rc.look("ask in vain", p, func(ctx context.Context) error {
		_, totals := p.rdr.Totals(ctx, []string{"a", " "}, 0)
		_, series := p.rdr.Series(ctx, reader.SeriesQuery{Counters: counters[:1], Step: must(reader.ParseStep("1h")), From: rc.began, To: rc.began})
		_, step := reader.ParseStep("7m")
		_, window := reader.ParseWindow("yesterday", time.UTC)
		_, pattern := p.adm.AddRule(ctx, store.KindSeries, "", keepForAll)
		_, period := p.adm.FillSeries(ctx, "*", store.Period{})
		_, token := admin.NewVerifier(s, s).Page(ctx, "", "x", 1, false)
		_, after := p.jnl.Page(ctx, admin.JournalQuery{Counter: "a", After: "x", Limit: 1})
		answers := []error{totals, series, step, window, pattern, period, token, after, p.adm.Grow(ctx, "a", -1)}
		for _, x := range [][3]string{{"", "*", "all"}, {"A b", "*", "all"}, {"x", "{n", "all"}, {"x", "{m}{n}", "all"}, {"x", "{m}a{m}", "all"}, {"x", "*", "{m}"}, {"x", "*", ""}, {"x", "=*", "all"}} {
			answers = append(answers, p.adm.CreateIndex(ctx, x[0], x[1], x[2]))
		}
		accepted = slices.Index(answers, nil)
		return nil
	}, func() {
		if accepted >= 0 {
			rc.violate("%s accepts wrong request %d", p.name, accepted)
		}
	})
}

// inWindow returns the sum of a counter in the window of a board.
func (so *seriesOracle) inWindow(window, counter string, at time.Time) (sum int64) {
	from, to := wire.MinuteOf(at.Add(-time.Hour)), wire.MinuteOf(wire.MaxTime)
	if window == "today" {
		day := at.UTC().Truncate(24 * time.Hour)
		from, to = wire.MinuteOf(day), wire.MinuteOf(day.AddDate(0, 0, 1))
	}
	for minute, n := range so.folded[counter] {
		if minute >= from && minute < to {
			sum += n
		}
	}
	return sum
}

// askRank asks for the place of a counter.
func (rc *readClients) askRank(p *proc, x *store.Index) {
	counter := pick(rc.rng, counters[:2+rc.shape.counters])
	var got reader.Rank
	rc.look("rank", p, func(ctx context.Context) (err error) {
		got, err = p.rdr.Rank(ctx, reader.BoardQuery{Index: x.Name}, counter)
		return err
	}, func() {
		total, exists := rc.db.servedAt(counter, got.CompleteAsOf)
		if !exists || total <= 0 {
			return
		}
		rank := 1
		for _, other := range rc.totals.namesOf(x, false) {
			if sum, _ := rc.db.servedAt(other, got.CompleteAsOf); sum > total {
				rank++
			}
		}
		if got.Total != total || got.Rank != rank {
			rc.violate("the rank of %s as of %s is %d with %d, and not %d with %d", counter, got.CompleteAsOf.Format(clockFormat), got.Rank, got.Total, rank, total)
		}
	})
}

// boardRate is how many rows a second a scan for a leaderboard may read, where they cost money.
const boardRate = 1000

// askTop asks a reader for the best counters of an index, several times one after the other: later answers come from the same board.
func (rc *readClients) askTop(p *proc, times int) {
	x := pick(rc.rng, rc.indexed.indexes)
	q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: x.Name}, N: 1 + rc.rng.IntN(20)}
	window, final := "", rc.final
	if rc.rng.IntN(4) == 0 {
		window = pick(rc.rng, []string{"today", "1h", "this-week", "this-month"})
	}
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

// namesOf returns the counters of an index that were folded to, or their groups.
func (to *totalOracle) namesOf(x *store.Index, groups bool) []string {
	names := make(map[string]bool)
	for counter := range to.folded {
		if group, ok := x.GroupOf(counter); ok && groups {
			names[group] = true
		} else if x.Has(counter) && !countmill.IsGroup(counter) && !groups {
			names[counter] = true
		}
	}
	return slices.Collect(maps.Keys(names))
}

// checkTop: a leaderboard has the counters, or the groups, with the largest totals of its moment, in order. Counters at 0 may be missing: they
// may have been removed since. A board of a window has sums of minutes.
func (to *totalOracle) checkTop(x *store.Index, q *reader.TopQuery, window string, top *reader.Top) {
	if window != "" && (len(to.db.swept) > 0 || top.CompleteAsOf.Before(to.db.lastAt)) { // folds have no history by minute
		return
	}
	var all []board.Ranked
	for _, counter := range to.namesOf(x, q.Groups) {
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
