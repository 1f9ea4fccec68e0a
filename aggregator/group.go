package aggregator

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// grouper finds the groups of counters (store.Index). It is not safe for concurrent use. A nil grouper
// finds none, and is what most databases have.
type grouper struct {
	indexes []*store.Index // in force, by their numbers
	name    []byte
	visited [][]byte  // by eachOf, by index
	sets    [][]int64 // so far: few counters differ

	overflowed int // see overflows
}

func newGrouper(rules *store.Rules) *grouper {
	if rules == nil {
		return nil
	}
	var indexes []*store.Index
	for i := range rules.Indexes {
		if x := &rules.Indexes[i]; x.InForce() {
			indexes = append(indexes, x)
		}
	}
	if len(indexes) == 0 {
		return nil
	}
	slices.SortFunc(indexes, func(a, b *store.Index) int { return cmp.Compare(a.Number, b.Number) })
	return &grouper{indexes: indexes, visited: make([][]byte, len(indexes))}
}

// each visits the groups of a counter, with the index's position. The name is good until the next
// visit.
func (g *grouper) each(counter string, visit func(i int, group []byte)) {
	if g == nil {
		return
	}
	for i, x := range g.indexes {
		name, ok := x.AppendGroup(g.name[:0], counter)
		if g.name = name; ok {
			visit(i, name)
		}
	}
}

// eachOf visits the groups of a part's counters. It may visit one several times, but not for two
// counters next to each other: those are most often in the same group.
func (g *grouper) eachOf(p *part, visit func(group []byte)) {
	if g == nil {
		return
	}
	for i := range g.visited {
		g.visited[i] = g.visited[i][:0] // no group has an empty name
	}
	for i := range p.Entries {
		g.each(p.Entries[i].Counter, func(index int, group []byte) {
			if v := &g.visited[index]; !bytes.Equal(*v, group) {
				*v = append((*v)[:0], group...)
				visit(group)
			}
		})
	}
}

// A groupSum is the sum of a group.
type groupSum struct {
	name string
	int128.Int
}

// sums returns the sums of groups for those of one minute, by wire.Order, and the indexes of each add. Sums of
// 0 are left out.
func (g *grouper) sums(adds []store.ShardDelta) (groups []store.ShardDelta, sets [][]int64) {
	if g == nil {
		return nil, nil
	}
	var sums []groupSum
	places := make(map[string]int)
	latest := make([]int, len(g.indexes)) // most often the counter before is in the same group
	sets = make([][]int64, len(adds))
	var space [store.MaxGroups]int64
	for i := range adds {
		set := space[:0]
		g.each(adds[i].Counter, func(index int, group []byte) {
			set = append(set, g.indexes[index].Number)
			if store.IsOverflow(group) {
				g.overflowed++
			}
			at := latest[index]
			if at >= len(sums) || sums[at].name != string(group) {
				known := false
				if at, known = places[string(group)]; !known {
					at = len(sums)
					sums = append(sums, groupSum{name: string(group)})
					places[sums[at].name] = at
				}
				latest[index] = at
			}
			sums[at].Int = sums[at].Add(adds[i].Sum())
		})
		sets[i] = g.intern(set)
	}
	return addsOf(sums), sets
}

// overflows is the number of counters that sums has put into an overflow group.
func (g *grouper) overflows() int {
	if g == nil {
		return 0
	}
	return g.overflowed
}

// addsOf makes the adds of a commit from the sums of groups.
func addsOf(sums []groupSum) []store.ShardDelta {
	adds := make([]store.ShardDelta, 0, len(sums))
	for i := range sums {
		if sums[i].Int == (int128.Int{}) {
			continue
		}
		add := store.ShardDelta{Counter: sums[i].name}
		add.Delta, add.Upper = sums[i].Halves()
		add.Order, add.Hash = wire.Hashes(add.Counter)
		adds = append(adds, add)
	}
	slices.SortFunc(adds, compareAdds)
	return adds
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
