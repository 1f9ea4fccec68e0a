package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

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
