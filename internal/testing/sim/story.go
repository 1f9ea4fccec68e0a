package sim

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// A cut makes the plan of a schedule smaller.
type cut struct {
	name string
	do   func(*plan)
}

// A variant is a schedule with a smaller plan, with other draws than its seed's unless salt is 0, or over another engine.
type variant struct {
	cuts    []cut
	salt    uint64
	machine Machine // nil for the engine in memory
}

// apply makes the plan smaller, and sets its draws.
func (v *variant) apply(k *kernel) {
	for _, c := range v.cuts {
		c.do(k.plan)
	}
	if v.salt > 0 {
		k.rng = rand.New(rand.NewPCG(k.seed, v.salt))
	}
}

// cuts are the parts that a plan can be without, the largest first.
func (pl *plan) cuts() []cut {
	all := []cut{
		{"reads to come to a number of calls", func(pl *plan) { pl.least = 0 }},
		{"an operator", func(pl *plan) { pl.shape.operator = false; pl.set(0, DayPasses, Swept) }},
		{"changes of the window", func(pl *plan) { pl.changing = false; pl.set(0, ofWindows...) }},
		{"a journal", func(pl *plan) { pl.journal, pl.pages = nil, nil; pl.set(0, JournalRuled) }},
		{"pages of the journal", func(pl *plan) { pl.pages = nil; pl.set(0, JournalRuled) }},
		{"indexes", func(pl *plan) { pl.indexed = nil; pl.set(0, ofIndexes...) }},
		{"another database on the cache", func(pl *plan) { pl.neighbour = noNeighbour }},
		{"sequences", func(pl *plan) { pl.sequences = 0; pl.set(0, takes.all()...) }},
		{"series", func(pl *plan) { pl.rules = nil }},
		{"a crowd", func(pl *plan) { pl.crowd = nil }},
		{"a contest", func(pl *plan) { pl.contest = nil }},
		{"batches over HTTP", func(pl *plan) { pl.outside = false; pl.set(0, RequestLost, AnswerLost, RequestTwice, IDsTaken) }},
		{"further publishers", func(pl *plan) { pl.shape.publishers, pl.remotes = 1, min(pl.remotes, 1) }},
		{"further aggregators", func(pl *plan) { pl.shape.aggregators = 1 }},
		{"further readers", func(pl *plan) { pl.shape.readers = 1 }},
		{"further counters", func(pl *plan) { pl.shape.counters = 0 }},
		{"further shards", func(pl *plan) { pl.shape.shards, pl.shape.maxShards, pl.shape.shardRate = 0, 2, -1 }},
		{"concurrent commits", func(pl *plan) { pl.shape.commits, pl.limits.Commits = 1, 1 }},
		{"small bounds", func(pl *plan) {
			pl.shape.maxEntries, pl.shape.maxBytes, pl.shape.windowMessages, pl.shape.windowCounters, pl.shape.held = 1000, 1<<20, 100, 1000, 10
		}},
		{"a least number of steps", func(pl *plan) { pl.shape.minSteps = 0 }},
		{"events", func(pl *plan) { pl.shape.eventRate = 0 }},
	}
	for f, rate := range pl.rates {
		if rate > 0 {
			all = append(all, cut{"the fault " + faultNames[f], func(pl *plan) { pl.set(0, Fault(f)) }})
		}
	}
	for range 4 {
		all = append(all, cut{"half of the requests", func(pl *plan) { pl.shape.works = (pl.shape.works + 1) / 2 }})
	}
	return all
}

// shrink looks for the smallest variant that still fails. fails runs one, and returns how large the schedule was; negative if it did
// not fail. most bounds the runs. A smaller plan makes other draws, so each one has several tries.
func shrink(all []cut, most int, fails func(variant) int) (best variant) {
	const tries = 10
	runs := 0
	fit := func(cuts []cut) bool {
		for try := range uint64(tries) {
			salt := best.salt + try
			if runs++; runs <= most && fails(variant{cuts: cuts, salt: salt}) >= 0 {
				best = variant{cuts: cuts, salt: salt}
				return true
			}
		}
		return false
	}
	for size := len(all); size > 0; size /= 2 {
		for at := 0; at < len(all); {
			end := min(at+size, len(all))
			if fit(slices.Concat(best.cuts, all[at:end])) {
				all = slices.Delete(slices.Clone(all), at, end)
			} else {
				at = end
			}
		}
	}
	least := fails(best)
	for salt := best.salt + 1; runs < most; salt++ {
		runs++
		if size := fails(variant{cuts: best.cuts, salt: salt}); size >= 0 && (least < 0 || size < least) {
			best.salt, least = salt, size
		}
	}
	return best
}

// needs names the parts that no cut of the variant has removed.
func (v *variant) needs(all []cut) string {
	var left []string
	for _, c := range all {
		if !slices.ContainsFunc(v.cuts, func(x cut) bool { return x.name == c.name }) {
			left = append(left, c.name)
		}
	}
	return strings.Join(left, ", ")
}

// inner matches lines of the trace about inner steps of a process.
var inner = regexp.MustCompile(` (shape \{|go \w+\.|run$|ask op \d)`)

// legible is the trace of a schedule for people.
func legible(trace []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(trace), inner.MatchString), "\n")
}
