// Package scaling prints and keeps the simulations of internal/testing/loadsim: how many shards
// counters get, which choice of shards contends least, and the results of loads beyond a machine.
package scaling

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/internal/testing/loadsim"
)

// A row is one run.
type row struct {
	Table string `json:"table"`
	Name  string `json:"name"`
	loadsim.Load
	Seed uint64 `json:"seed"`
	loadsim.Figures
}

// A table is a title, columns, and simulations.
type table struct {
	title   string
	columns string
	cells   []cell
	line    func(r *row) string
}

type cell struct {
	name  string
	setup loadsim.Setup
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := command.NewFlags("scaling", time.Hour, stderr)
	seeds := f.Uint64("seeds", 5, "number of simulations of a random case")
	compare := f.Bool("doubling", false, "compare the policy with doubling on contention instead: docs/adr/002-shards-follow-the-load.md")
	limit := f.Duration("limit", 20*time.Second, "end a run that takes longer")
	if err := f.Parse(args, map[string]string{"seeds": "1", "limit": "1s"}); err != nil {
		return err
	}
	head := report.NewHead(f.Quick)
	if err := head.Print(stdout); err != nil {
		return err
	}
	var rows []row
	tables := []table{growth(*seeds), stores(*seeds), choices(), limits(), hotGroups(f.Quick), loads(f.Quick)}
	if *compare {
		tables = compared(*seeds)
	}
	for _, t := range tables {
		fmt.Fprintf(stdout, "\n%s\n\n%s\n", t.title, t.columns)
		for _, c := range t.cells {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			c.setup.Limit = *limit
			r := row{Table: t.title, Name: c.name, Load: c.setup.Load, Seed: c.setup.Seed, Figures: loadsim.Run(c.setup)}
			fmt.Fprintln(stdout, t.line(&r))
			rows = append(rows, r)
		}
	}
	return f.Keep(struct {
		report.Head
		Rows []row `json:"rows"`
	}{head, rows}, stderr)
}

// one is a million increments a second on one counter.
func one(aggregators int) loadsim.Load {
	return loadsim.Load{Increments: 1e6, Counters: 1, Publishers: 100, Aggregators: aggregators}
}

var fleets = []int{1, 10, 100, 1000}

const grows = "| aggregators | seed | commits/s | needed | shards | shards/needed | as many as needed after | writes of the record | aborted in the last 15 s | age p99 |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"

func growthLine(r *row) string {
	if r.Cut > 0 {
		return fmt.Sprintf("| %s | %d | not simulated to its end: %.0f s | | | | | | | |", r.Name, r.Seed, r.Cut.Seconds())
	}
	return fmt.Sprintf("| %s | %d | %.0f | %d | %d | %.2f | %s | %d | %.1f %% | %.2f s |", r.Name, r.Seed, r.Commits, r.Needed, r.HotShards,
		float64(r.HotShards)/float64(r.Needed), r.enough(), r.Raises, 100*r.Aborted, r.Age.Seconds())
}

// enough returns when the hot counter had the number of shards that it needs at the end.
func (r *row) enough() string {
	for _, g := range r.Grew {
		if g.Shards >= r.Needed {
			return fmt.Sprintf("%.0f s", g.At.Seconds())
		}
	}
	return "-"
}

// growth is how many shards one counter has after a minute.
func growth(seeds uint64) table {
	t := table{title: "Shards of one counter after 60 s, 1,000,000 increments/s from 100 publishers, at most 999 shards", columns: grows, line: growthLine}
	for _, n := range fleets {
		for seed := range seeds {
			t.cells = append(t.cells, cell{fmt.Sprint(n), loadsim.Setup{Load: one(n), Max: 999, Seed: seed}})
		}
	}
	return t
}

// stores is the same on stores that accept fewer concurrent commits, or let them wait longer.
func stores(seeds uint64) table {
	t := table{title: "The same on other stores", columns: grows, line: growthLine}
	for _, s := range []struct {
		name  string
		store loadsim.Store
	}{
		{"2 at once, waits 100 ms", loadsim.Store{Burst: 2, Patience: 100 * time.Millisecond}},
		{"1 at once, waits 0 s", loadsim.Store{Burst: 1, Patience: 1}},
		{"5 at once, waits 5 s", loadsim.Store{Patience: 5 * time.Second}},
		{"5 writes/s, 10 at once", loadsim.Store{Rate: 5, Burst: 10}},
	} {
		for _, n := range fleets {
			for seed := range (seeds + 1) / 2 {
				t.cells = append(t.cells, cell{fmt.Sprint(n, ", ", s.name), loadsim.Setup{Load: one(n), Store: s.store, Max: 999, Seed: seed}})
			}
		}
	}
	return t
}

// choices compares ways to choose a shard when there are 1.5 times as many as needed.
func choices() table {
	t := table{
		title:   "Commits lost to contention, by how shards are chosen; 1.5 times as many shards as needed",
		columns: "| aggregators, store | choice | aborted | age p99 |\n| --- | --- | ---: | ---: |",
		line: func(r *row) string {
			return fmt.Sprintf("| %s | %.1f %% | %.2f s |", r.Name, 100*r.Aborted, r.Age.Seconds())
		},
	}
	for _, s := range []struct {
		name  string
		store loadsim.Store
	}{
		{"5 at once, waits 500 ms", loadsim.Store{}},
		{"2 at once, waits 100 ms", loadsim.Store{Burst: 2, Patience: 100 * time.Millisecond}},
	} {
		for _, n := range fleets {
			shards := map[int]int{1: 15, 10: 120, 100: 430, 1000: 580}[n]
			for _, name := range []string{"uniform", "older of two", "sticky", "walk"} {
				choice := loadsim.Choices[name]
				if choice == nil {
					choice = loadsim.Product
				}
				t.cells = append(t.cells, cell{fmt.Sprintf("%d, %s | %s", n, s.name, name),
					loadsim.Setup{Load: one(n), Store: s.store, Start: shards, Max: shards, Choice: choice}})
			}
		}
	}
	return t
}

// limits are counters that have all the shards that they may have, and need more.
func limits() table {
	t := table{
		title:   "One counter that needs more than its 128 shards, 1,000,000 increments/s",
		columns: "| aggregators | windows | commits/s | aborted | age p99 | writes per million |\n| ---: | --- | ---: | ---: | ---: | ---: |",
		line: func(r *row) string {
			return fmt.Sprintf("| %d | %s | %.0f | %.1f %% | %.2f s | %.0f |", r.Aggregators, r.Name, r.Commits, 100*r.Aborted, r.Age.Seconds(), r.Writes)
		},
	}
	for _, n := range []int{100, 1000} {
		for _, most := range []time.Duration{0, 2 * time.Second, 10 * time.Second} {
			name := "of 100 ms"
			if most > 0 {
				name = fmt.Sprintf("that widen by up to %s", most)
			}
			t.cells = append(t.cells, cell{name, loadsim.Setup{Load: one(n), Start: 128, Widen: most}})
		}
	}
	return t
}

// hotGroups are loads whose increments all go to 20 groups, beside the same loads without an index.
func hotGroups(quick bool) table {
	t := table{
		title: "All increments go to 20 groups; Zipf, 4 aggregators",
		columns: "| increments/s | publishers | counters | shards at first | minutes | groups | counted | commits/s | aborted | blocked | shards of a counter: median, most | of a group: median, most | a group needs | reads a total of a group, most | age p99 | writes per million |\n" +
			"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
		line: groupsLine,
	}
	for _, c := range []struct {
		increments                  float64
		publishers, counters, start int
		minutes                     time.Duration
	}{{1e4, 10, 1000, 1, 5}, {1e5, 25, 1000, 1, 5}, {1e5, 25, 10_000, 20, 1}} {
		if quick && c.counters > 1000 {
			continue
		}
		for _, groups := range []int{0, 20} {
			l := loadsim.Load{Increments: c.increments, Counters: c.counters, Zipf: true, Groups: groups, Publishers: c.publishers, Aggregators: 4}
			setup := loadsim.Setup{Load: l, Start: c.start, Warmup: c.minutes*time.Minute - 15*time.Second}
			t.cells = append(t.cells, cell{fmt.Sprintf("%d | %d", c.start, c.minutes), setup})
		}
	}
	return t
}

func groupsLine(r *row) string {
	begin := fmt.Sprintf("| %s | %d | %d | %s | %d |", report.Short(r.Increments), r.Publishers, r.Counters, r.Name, r.Groups)
	if r.Cut > 0 {
		return fmt.Sprintf("%s not simulated to its end: %.0f s | | | | | | | | | |", begin, r.Cut.Seconds())
	}
	age, counted := r.counted()
	of := "– | – | –"
	if r.Groups > 0 {
		of = fmt.Sprintf("%d, %d | %d | %d", r.GroupShards, r.MostGroupShards, r.GroupNeeded, r.MostGroupShards+1)
	}
	return fmt.Sprintf("%s %s | %.0f | %.1f %% | %.1f %% | %d, %d | %s | %s | %.0f |", begin, counted, r.Commits, 100*r.Aborted, 100*r.Blocked, r.Shards, r.MostShards, of, age, r.Writes)
}

// counted returns the age of increments, and the share of the published ones that is counted.
func (r *row) counted() (age, counted string) {
	if r.Behind() {
		return "grows", fmt.Sprintf("%.0f %%", 100*r.Counted/r.Published)
	}
	return fmt.Sprintf("%.2f s", r.Age.Seconds()), "all"
}

// loads are loads of one to 10,000 counters, with the aggregators that each needs.
func loads(quick bool) table {
	t := table{
		title: "Loads beyond one machine, default settings, at most 128 shards",
		columns: "| increments/s | publishers | counters | aggregators | counted | commits/s | aborted | shards: median, most | age p99 | writes per million |\n" +
			"| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
		line: loadLine,
	}
	for _, increments := range []float64{1e5, 1e6, 1e7} {
		for _, c := range []struct {
			counters int
			hot      bool
		}{{1, false}, {100, false}, {100, true}, {10_000, false}, {10_000, true}} {
			for _, n := range fleets {
				if quick && n*c.counters > 1000 || increments < 1e6 && c.counters > 1 && !(c.hot && c.counters > 100) {
					continue
				}
				l := loadsim.Load{Increments: increments, Counters: c.counters, Hot: c.hot, Publishers: int(increments / 1e4), Aggregators: n}
				t.cells = append(t.cells, cell{"", loadsim.Setup{Load: l}})
			}
		}
	}
	return t
}

func loadLine(r *row) string {
	kind := fmt.Sprint(r.Counters, " alike")
	switch {
	case r.Counters == 1:
		kind = "1"
	case r.Hot:
		kind = fmt.Sprint(r.Counters, ", one hot")
	}
	begin := fmt.Sprintf("| %s | %d | %s | %d |", report.Short(r.Increments), r.Publishers, kind, r.Aggregators)
	if r.Cut > 0 {
		return fmt.Sprintf("%s not simulated to its end: %.0f s | | | | | |", begin, r.Cut.Seconds())
	}
	age, counted := r.counted()
	return fmt.Sprintf("%s %s | %.0f | %.1f %% | %d, %d | %s | %.0f |", begin, counted, r.Commits, 100*r.Aborted, r.Shards, r.MostShards, age, r.Writes)
}
