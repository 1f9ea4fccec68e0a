package scaling

import (
	"fmt"
	"time"

	"github.com/countmill/countmill/internal/testing/loadsim"
)

// policies are the policies that docs/adr/002-shards-follow-the-load.md compares.
var policies = []policy{
	{"today", func(*loadsim.Setup) {}},
	{"doubling", doubling},
}

// variants are variants of doubling. The first is the one in policies.
var variants = []policy{
	{"doubling", doubling},
	{"drawn shards", func(s *loadsim.Setup) { doubling(s); s.Choice = loadsim.DoublingDrawn }},
	{"records read every 5 s", func(s *loadsim.Setup) { doubling(s); s.Reread = 5 * time.Second }},
	{"upper half", func(s *loadsim.Setup) { doubling(s); s.Choice = loadsim.DoublingUpper }},
	{"one raise in 2 s", func(s *loadsim.Setup) { doubling(s); s.Gap = 2 * time.Second }},
	{"upper half, one raise in 2 s", func(s *loadsim.Setup) { doubling(s); s.Choice, s.Gap = loadsim.DoublingUpper, 2*time.Second }},
}

type policy struct {
	name string
	set  func(s *loadsim.Setup)
}

func doubling(s *loadsim.Setup) { s.Choice, s.Gap = loadsim.Doubling, loadsim.DoublingGap }

// compared returns tables that compare today's policy with doubling.
func compared(seeds uint64) []table {
	fewer := (seeds + 1) / 2
	others := beside(growth(fewer), variants)
	others.title = "Variants of doubling"
	return []table{beside(growth(seeds), policies), beside(stores(seeds), append(policies, variants[len(variants)-1])), others, crowds(fewer)}
}

// beside simulates each cell of a table once for each policy.
func beside(t table, policies []policy) table {
	var cells []cell
	for _, c := range t.cells {
		for _, p := range policies {
			s := c.setup
			p.set(&s)
			cells = append(cells, cell{p.name + " | " + c.name, s})
		}
	}
	t.columns = "| policy | aggregators | seed | needed | shards | shards/needed | as many as needed after | writes of the record | reads | aborted in the last 15 s | age p99 |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
	t.cells, t.line = cells, func(r *row) string {
		if r.Cut > 0 {
			return fmt.Sprintf("| %s | %d | not simulated to its end: %.0f s | | | | | | | |", r.Name, r.Seed, r.Cut.Seconds())
		}
		return fmt.Sprintf("| %s | %d | %d | %d | %.2f | %s | %d | %d | %.1f %% | %.2f s |", r.Name, r.Seed, r.Needed, r.HotShards,
			float64(r.HotShards)/float64(r.Needed), r.enough(), r.Raises, r.Reads, 100*r.Aborted, r.Age.Seconds())
	}
	return t
}

// crowds are many counters, most of which need only one shard.
func crowds(seeds uint64) table {
	t := table{
		title: "Many counters, at most 128 shards each",
		columns: "| policy | load | aggregators | seed | counted | shards, all counters | needed | counters with over twice the need | most shards | reads | writes of records | aborted | age p99 |\n" +
			"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
		line: func(r *row) string {
			return fmt.Sprintf("| %s | %d | %d | %.0f %% | %d | %d | %d | %d | %d | %d | %.1f %% | %.2f s |", r.Name, r.Aggregators, r.Seed, 100*r.Counted/r.Published,
				r.All, r.AllNeeded, r.Over, r.MostShards, r.Reads, r.Written, 100*r.Aborted, r.Age.Seconds())
		},
	}
	for _, l := range []struct {
		name string
		load loadsim.Load
	}{
		{"300 cold, 100/s in all", loadsim.Load{Increments: 100, Counters: 300, Publishers: 10}},
		{"300 cold and one hot, 200/s", loadsim.Load{Increments: 200, Counters: 301, Hot: true, Publishers: 10}},
		{"300 Zipf, 1,000/s", loadsim.Load{Increments: 1e3, Counters: 300, Zipf: true, Publishers: 10}},
		{"3,000 Zipf, 10,000/s", loadsim.Load{Increments: 1e4, Counters: 3000, Zipf: true, Publishers: 10}},
		{"100 alike, 1,000,000/s", loadsim.Load{Increments: 1e6, Counters: 100, Publishers: 100}},
	} {
		for _, n := range []int{1, 3, 10} {
			for seed := range seeds {
				for _, p := range policies {
					s := loadsim.Setup{Load: l.load, Seed: seed}
					s.Aggregators = n
					p.set(&s)
					t.cells = append(t.cells, cell{p.name + " | " + l.name, s})
				}
			}
		}
	}
	return t
}
