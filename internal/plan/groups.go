package plan

import (
	"math"

	"github.com/countmill/countmill/wire"
)

// A group is a set of groups of an index that get the same part of all increments, with their sums in
// a batch.
type group struct {
	class
	in      float64 // probability that a batch has counters of it
	entries float64 // distinct counters of it in a batch
}

// matched is the number of counters of an index, if at most so many are; 0: all.
func matched(most, counters int64) float64 {
	if most == 0 {
		return float64(counters)
	}
	return float64(most)
}

// groupsOf returns the groups of the load with their sums in a batch of that many coalesced increments. Names decide
// which counters are in a group. So the busiest counters are in groups apart, and each group has as many of the
// others.
func (l Load) groupsOf(of []class, increments float64) (groups []group) {
	if l.Groups == 0 {
		return nil
	}
	n, left := float64(l.Groups), matched(l.IndexCounters, l.Counters)
	alone := n // groups without one of the busiest counters
	var rest group
	for _, c := range of {
		c.counters = min(c.counters, left)
		left -= c.counters
		each := drawn(c.share, increments)
		if top := min(c.counters, alone); top > 0 {
			groups = append(groups, group{class: class{top, c.share}, entries: each})
			alone -= top
			c.counters -= top
		}
		rest.share += c.counters * c.share / n
		rest.entries += c.counters * each / n
	}
	for i := range groups {
		g := &groups[i]
		g.share, g.entries = min(g.share+rest.share, 1-1e-12), g.entries+rest.entries
		g.in = drawn(g.share, increments)
	}
	return groups
}

// classesOf returns the groups as counters, which they are.
func classesOf(groups []group) []class {
	of := make([]class, len(groups))
	for i, g := range groups {
		of[i] = g.class
	}
	return of
}

// spreadGroups computes ofGroups and groups for the present number of commits.
//
// The order of the cut has the n counters of a group next to each other in a batch. The parts with any of them
// begin at one of these, or at one of the 23 before. So their copies are spread over
//
//	rho = (commits-1) * min(1, (23+n)/entries)
//
// boundaries between commits. A batch has one part with the group, and one more for each 24 of its counters.
func (w *window) spreadGroups(b batch, m float64) {
	w.ofGroups, w.groups = make([]float64, len(b.groups)), 0
	entries := max(b.entries-b.ids, 1e-9)
	for i, g := range b.groups {
		has := drawn(g.share, b.increments*m)
		n := g.entries / max(g.in, 1e-9) // of a batch that has any
		if rho := (w.commits - 1) * min(1, (wire.MaxEntries-1+n)/entries); rho > 0 && g.in > 0 {
			has = max(has, commitsOf(g.in, m*(1+(n-1)/wire.MaxEntries), rho))
		}
		// As for counters: increments with ids are in several commits only if they do not fit one.
		has = max(has, b.ids*m*g.share/(commitEntities-1))
		w.ofGroups[i] = has
		w.groups += g.counters * has
	}
}

// index adds the cost of an index: a sum for each group of a commit, and what workers read and write. shards is
// the number of shards of counters by class.
func (c *Cost) index(l Load, of []class, b batch, w window, aggregators float64, shards []float64) {
	if l.Groups == 0 {
		return
	}
	c.indexWork(l, of, shards) // c.Shards is of the counters yet
	windows := aggregators / w.every
	c.GroupsWritten = windows * w.groups
	folds := make([]float64, len(b.groups))
	for i, g := range b.groups {
		n := l.shards(w.ofGroups[i] * windows)
		c.Shards += g.counters * n
		c.MostShards = max(c.MostShards, n)
		folds[i] = w.ofGroups[i] / w.every
	}
	c.Records += float64(l.Groups)
	c.RecordsRead += records(classesOf(b.groups), folds, aggregators)
}

const (
	indexRanges  = 16.0           // of a new index (package indexer)
	recheckEvery = 24 * 3600.0    // how often workers read an index again, in seconds
	lookEvery    = 5.0            // seconds; a worker reads the rules
	keysARead    = 1000.0         // a query for keys costs a read for so many
	groupedBytes = float64(3 + 8) // the property of a shard with its grouped part
)

// indexWork has the reads and writes of one worker. It lists the keys of all counters' shards, and reads the shards
// of the index. The remainder of a group is set for each range that has shards of the group, in a transaction that
// reads it and writes it and the group's record (backend/datastore, SetRemainders). Each recheck reads all of that
// again.
func (c *Cost) indexWork(l Load, of []class, shards []float64) {
	read, left := 0.0, matched(l.IndexCounters, l.Counters)
	for i, class := range of {
		n := min(class.counters, left)
		read += n * shards[i]
		left -= n
	}
	remainders := float64(l.Groups) * indexRanges * -math.Expm1(read/float64(l.Groups)*math.Log1p(-1/indexRanges))
	c.IndexBuild = Build{Shards: read, Remainders: remainders, Read: read + c.Shards/keysARead + remainders, Written: 2 * remainders}
	c.IndexBuild.Dollars = l.Prices.once(c.IndexBuild.Read, c.IndexBuild.Written)
	c.IndexRead = c.IndexBuild.Read/recheckEvery + 1/lookEvery
	c.StoredBytes += read*groupedBytes + remainders*l.remainderBytes()
}
