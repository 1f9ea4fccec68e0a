package aggregator

import (
	"cmp"
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// grouper finds the groups of counters. It is not safe for concurrent use. A nil grouper finds none.
type grouper struct {
	indexes []*store.Index // in force, by their numbers
	name    []byte
	sets    [][]int64 // so far: few counters differ
}

func newGrouper(rules *store.Rules) *grouper {
	if rules == nil {
		return nil
	}
	g := new(grouper)
	for i := range rules.Indexes {
		if x := &rules.Indexes[i]; x.InForce() {
			g.indexes = append(g.indexes, x)
		}
	}
	if len(g.indexes) == 0 {
		return nil
	}
	slices.SortFunc(g.indexes, func(a, b *store.Index) int { return cmp.Compare(a.Number, b.Number) })
	return g
}

// each visits the groups of a counter. The name is good until the next visit.
func (g *grouper) each(counter string, visit func(x *store.Index, group []byte)) {
	if g == nil {
		return
	}
	for _, x := range g.indexes {
		name, ok := x.AppendGroup(g.name[:0], counter)
		if g.name = name; ok {
			visit(x, name)
		}
	}
}

// sums returns the sums of groups for those of one minute, by wire.Order, and the indexes of each add. It reports
// false if a sum does not fit int64.
func (g *grouper) sums(adds []store.ShardDelta) (groups []store.ShardDelta, sets [][]int64, ok bool) {
	if g == nil {
		return nil, nil, true
	}
	sums, ok := make(map[string]int64), true
	sets = make([][]int64, len(adds))
	var space [store.MaxGroups]int64
	for i := range adds {
		delta, set := adds[i].Delta, space[:0]
		g.each(adds[i].Counter, func(x *store.Index, group []byte) {
			set = append(set, x.Number)
			sum := sums[string(group)]
			if delta == 0 {
				return
			}
			var fits bool
			if sum, fits = plus(sum, delta); !fits {
				ok = false
			}
			sums[string(group)] = sum
		})
		sets[i] = g.intern(set)
	}
	if !ok {
		return nil, nil, false
	}
	groups = make([]store.ShardDelta, 0, len(sums))
	for group, sum := range sums {
		if sum == 0 {
			continue
		}
		add := store.ShardDelta{Counter: group, Delta: sum}
		add.Order, add.Hash = wire.Hashes(group)
		groups = append(groups, add)
	}
	slices.SortFunc(groups, compareAdds)
	return groups, sets, true
}

// intern returns a slice that all counters with the same set share.
func (g *grouper) intern(set []int64) []int64 {
	if len(set) == 0 {
		return nil
	}
	for _, known := range g.sets {
		if slices.Equal(known, set) {
			return known
		}
	}
	set = slices.Clone(set)
	if g.sets = append(g.sets, set); len(g.sets) > 2*store.MaxIndexes {
		g.sets = g.sets[len(g.sets)-store.MaxIndexes:]
	}
	return set
}

// eachName visits the counters of a part and their groups.
func (g *grouper) eachName(p *part, visit func(name []byte)) {
	if g == nil {
		return
	}
	p.each(func(q *part) {
		for i := range q.Entries {
			g.each(q.Entries[i].Counter, func(_ *store.Index, group []byte) { visit(group) })
		}
	})
}
