package loadsim

import "slices"

// groups are those of an index that every counter is in. Group number g is written like the counter that follows
// all counters, g places on. Counters of one group have neighbouring ranks: that is the order of the cut.
type groups struct{ counters, groups int }

// all is how many counters and groups there are.
func (g groups) all() int { return g.counters + g.groups }

// of is the group of a counter.
func (g groups) of(counter int32) int32 {
	return int32(g.counters + int(counter)*g.groups/g.counters)
}

// reach is how many groups a range of ranks reaches into, on average over where it begins.
func (g groups) reach(ranks int) float64 {
	if g.groups == 0 {
		return 0
	}
	return min(1+float64((ranks-1)*g.groups)/float64(g.counters), float64(g.groups))
}

// add appends a sum for each group of the counters of a commit.
func (g groups) add(adds []add) []add {
	if g.groups == 0 {
		return adds
	}
	last := int32(-1)
	for _, a := range adds { // in the order of counters, and so of groups
		if group := g.of(a.counter); group != last {
			adds, last = append(adds, add{counter: group}), group
		}
	}
	return adds
}

// halve divides the counters of a commit in two. A group may be in both halves.
func (g groups) halve(adds []add) (a, b []add) {
	counters := adds
	if first := slices.IndexFunc(adds, func(a add) bool { return int(a.counter) >= g.counters }); first >= 0 {
		counters = adds[:first]
	}
	n := len(counters) / 2
	return g.add(slices.Clone(counters[:n])), g.add(slices.Clone(counters[n:]))
}
