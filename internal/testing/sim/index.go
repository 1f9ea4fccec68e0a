package sim

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// indexPlan has the choices of a schedule with indexes.
type indexPlan struct {
	indexes []store.Index // that operators create and delete
	groups  []string      // that readers ask for
	workers int           // processes apart that build them
	first   bool          // the first index is there from the beginning
	cfg     indexer.Config
}

// ofIndexes happen only in schedules with indexes.
var ofIndexes = append(indexChanges.all(), IndexFails, KillIndexer, IndexerStopped, IndexChanged, RulesSettled)

// drawIndexes draws the indexes of some schedules.
func (pl *plan) drawIndexes() {
	rng := pl.rng
	if rng.IntN(8) > 0 || pl.crowd != nil || pl.contest != nil {
		return
	}
	ip := &indexPlan{workers: 1 + rng.IntN(3), first: rng.IntN(2) == 0}
	add := func(name, match, group string, groups ...string) {
		ip.indexes = append(ip.indexes, must(store.ParseIndex(name, match, group)))
		ip.groups = append(ip.groups, groups...)
	}
	add("all", "*", "all", "=all")
	if rng.IntN(2) == 0 {
		add("pages", "page:/{page}", "page:{page}", "=page:x", "=page:y")
	}
	if rng.IntN(2) == 0 {
		add("wide", "wide{n}", "w{n}", "=w1", "=w17", "=w40")
	}
	rng.Shuffle(len(ip.indexes), func(i, j int) { ip.indexes[i], ip.indexes[j] = ip.indexes[j], ip.indexes[i] })
	ip.cfg = indexer.Config{
		Lease: time.Minute, Every: []time.Duration{5 * time.Second, 30 * time.Second}[rng.IntN(2)],
		Ranges: 1 + rng.IntN(4), Page: []int{3, 20, 100}[rng.IntN(3)], MostGroups: []int{3, 10, 1000}[rng.IntN(3)],
		Recheck: []time.Duration{0, 3 * time.Minute, time.Hour}[rng.IntN(3)],
	}
	pl.indexed = ip
	rate := []float64{0, 0.1, 0.3}[rng.IntN(3)]
	pl.set(rate, ofIndexes...)
	pl.set(0.3, KillIndexer, IndexChanged, RulesSettled)
	pl.rates[IndexerStopped] = 0.7
	pl.shape.entities = max(pl.shape.entities, 250) // a part of 24 counters writes as many groups of each index, and days of the archive
	pl.shape.eventRate = max(pl.shape.eventRate, 0.04)
	pl.shape.minSteps += 60
	if pl.embedded {
		pl.rates[RulesSettled] = 0   // its store refuses older rules
		pl.rates[IndexerStopped] = 0 // its process has the only worker
		return
	}
	// A process then notices that its settings are older than a minute.
	pl.rates[ClockJumps], pl.rates[StoreClockJumps] = 0, 0
}

// startIndexer starts the work of indexes in a process.
func (ps *processes) startIndexer(p *proc, e *clock.Env) {
	cfg := ps.indexed.cfg
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.WorkerID = fmt.Sprint("indexer", p.slot)
	if p.n%2 == 0 {
		cfg.WorkerID = p.name // as a process that is started elsewhere
	}
	// Ends of waiting of its own: no two fall on the same instant.
	cfg.Every += time.Duration(p.n)*1019 + 7
	cfg.CallTimeout = 30*time.Second + time.Duration(p.n)*29 + 11
	p.idx = indexer.New(ps.db.storeOf(p, nil), clock.With(cfg, e))
	ctx, cancel := context.WithCancel(context.WithValue(background, indexKey{}, true))
	p.stopIndexer = cancel
	ps.running.Add(1)
	go func() {
		defer ps.running.Done()
		ps.park(&step{p: p, op: "run indexer"})
		p.idx.Run(ctx)
	}()
}

// createFirst creates an index before anything is counted.
func (db *database) createFirst() {
	if db.indexed != nil && db.indexed.first {
		if err := stepIndex(store.CreateIndex, db.indexed.indexes[0])(background, db.other); err != nil {
			panic(err)
		}
	}
}

// passSettle lets so much time pass that no commit by older rules can come any more.
func (w *World) passSettle() bool {
	if w.pages != nil && w.rng.IntN(3) == 0 {
		w.pass(time.Hour) // an aggregator that gets no further record of the journal
		return true
	}
	w.pass(store.RulesSettle + []time.Duration{-5 * time.Second, time.Second, time.Minute}[w.rng.IntN(3)])
	return true
}

// stopIndexer stops a worker that is about to set the remainders of a range, or to read those set there, for longer than its lease, and
// reports whether it did. Another one is there to take the range. Most stopped workers go on when nothing breaks any more.
func (w *World) stopIndexer(s *step) bool {
	others := slices.ContainsFunc(w.procs.lives(indexing), func(p *proc) bool { return p != s.p && !p.frozen })
	if s.op != "transact remainder" && s.op != "transact: get remainder" || !others || !w.strikes(IndexerStopped) {
		return false
	}
	s.p.frozen = true
	w.say(s.p, "is stopped")
	w.suspendFor(w.indexed.cfg.Lease + time.Second + time.Duration(w.rng.Int64N(int64(time.Minute))))
	return true
}

// settleIndexes reports whether all indexes are built or gone. Time passes if they wait for it.
func (w *World) settleIndexes() bool {
	if w.indexed == nil {
		return true
	}
	rules, now, all := w.db.rulesNow(), w.db.storeNow(), true
	if rules == nil {
		return true
	}
	for _, x := range rules.Indexes {
		begin := x.Since
		if !x.InForce() {
			begin = x.Ended.Add(max(x.Since.Sub(x.Ended), store.SettingsMaxAge))
		}
		if wait := begin.Sub(now); wait >= 0 {
			w.pass(wait + time.Second)
			return false
		}
		all = all && x.InForce() && !x.Serving.IsZero()
	}
	return all
}

// A groupOracle compares groups with the sums of their counters: in each commit, at each moment that a
// reader shows, and at the end with the ledger.
type groupOracle struct {
	*World

	known map[int64]store.Index // the latest state of each index, by number
}

func newGroupOracle(w *World) *groupOracle {
	return &groupOracle{World: w, known: make(map[int64]store.Index)}
}

// ruled notes the states of all indexes. An index never serves by ranges that were read before it held.
func (g *groupOracle) ruled(rules *store.Rules) {
	if rules == nil {
		return
	}
	for _, x := range rules.Indexes {
		if !x.Serving.IsZero() && x.InForce() && !x.Checked.After(x.Since) {
			g.violate("index %s was checked at %s, and holds since %s", x.Name, x.Checked.Format(clockFormat), x.Since.Format(clockFormat))
		}
		if g.known[x.Number].Serving.IsZero() && !x.Serving.IsZero() {
			g.Built++
		}
		g.known[x.Number] = x
	}
}

// applied: a commit adds to a group the amount that it notes as grouped.
func (g *groupOracle) applied(c *store.Commit) {
	if g.indexed == nil {
		return
	}
	left := make(map[string]int64)
	for _, a := range c.Adds {
		if countmill.IsGroup(a.Counter) {
			left[a.Counter] += a.Delta
		}
	}
	for _, noted := range c.Grouped {
		for _, number := range noted.Indexes {
			x := g.known[number]
			if group, ok := x.GroupOf(c.Adds[noted.Add].Counter); ok {
				left[group] -= c.Adds[noted.Add].Delta
			}
		}
	}
	for _, group := range slices.Sorted(maps.Keys(left)) {
		if left[group] != 0 {
			g.violate("a commit adds to %s %d more than it notes as grouped", group, left[group])
		}
	}
}

// served returns the index that served a group at a moment; nil if none did.
func (g *groupOracle) served(group string, at time.Time) *store.Index {
	for _, x := range g.known {
		if x.HasGroup(group) && !x.Serving.IsZero() && !x.Serving.After(at) && (x.InForce() || at.Before(x.Ended)) {
			return &x
		}
	}
	return nil
}

// check: a total of a group is the sum of all increments folded into its counters at its moment. Resets do
// not move it.
func (g *groupOracle) check(o *op, t *reader.Total) {
	x := g.served(t.Counter, t.AsOf)
	if x == nil {
		if t.Exists && !g.ended(t.Counter, t.AsOf) {
			g.violate("%s read %d of %s as of %s, when no index served it", o.p.name, t.Total, t.Counter, t.AsOf.Format(clockFormat))
		}
		return
	}
	g.Groups++
	var want int64
	for counter := range g.db.folds {
		if group, ok := x.GroupOf(counter); ok && group == t.Counter {
			want += g.db.totalAt(counter, t.AsOf)
		}
	}
	if want != t.Total {
		g.violate("%s read %d of %s as of %s, when its counters summed to %d", o.p.name, t.Total, t.Counter, t.AsOf.Format(clockFormat), want)
	}
}

// ended reports whether the index of a group had ended not long before: a reader may not know that yet. The
// groups stay for as long.
func (g *groupOracle) ended(group string, at time.Time) bool {
	for _, x := range g.known {
		if x.HasGroup(group) && !x.InForce() && !at.Before(x.Ended) && at.Sub(x.Ended) <= store.SettingsMaxAge+slack {
			return true
		}
	}
	return false
}

// look compares the groups of serving indexes with their counters now.
func (g *groupOracle) look() {
	if g.indexed == nil || !slices.ContainsFunc(slices.Collect(maps.Values(g.known)), func(x store.Index) bool { return x.InForce() && !x.Serving.IsZero() }) {
		return
	}
	now := g.db.moment()
	for _, number := range slices.Sorted(maps.Keys(g.known)) {
		x := g.known[number]
		if !x.InForce() || x.Serving.IsZero() {
			continue
		}
		want := make(map[string]int64)
		for counter := range g.db.folds {
			if group, ok := x.GroupOf(counter); ok {
				want[group] += g.db.sumOf(counter)
			}
		}
		for _, group := range slices.Sorted(maps.Keys(want)) {
			g.Groups++
			if got, _ := g.db.servedAt(group, now); got != want[group] {
				g.violate("%s is %d, when its counters sum to %d", group, got, want[group])
			}
		}
	}
}
