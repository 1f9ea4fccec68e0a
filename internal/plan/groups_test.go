package plan

import (
	"math"
	"strings"
	"testing"
	"time"
)

// The cells are the runs of the table "What groups cost" in docs/evidence/benchmarks.md: 10,000 counters in 100
// groups, 25 publishers. Records are left out: the plan is of a database that has all its shards.
func TestMeasuredGroups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                            string
		zipf, rate                      float64
		without, with, markers, commits float64 // a million increments; without and with an index are shards
	}{
		{"uniform, 1,000/s", 0, 1000, 994_050, 1_612_700, 100_000, 9650},
		{"uniform, 10,000/s", 0, 10_000, 958_445, 1_110_650, 59_995, 4320},
		{"uniform, 100,000/s", 0, 100_000, 666_594, 684_160, 41_080, 1994},
		{"Zipf, 1,000/s", 1.1, 1000, 634_750, 1_096_750, 100_000, 9650},
		{"Zipf, 10,000/s", 1.1, 10_000, 410_605, 538_415, 40_210, 2805},
		{"Zipf, 100,000/s", 1.1, 100_000, 226_461, 240_555, 18_376, 800},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// The bench's increments come at equal distances. At random moments a batch waits for its first one.
			gap := time.Duration(25 / c.rate * float64(time.Second))
			l := Load{Rate: c.rate, Counters: 10_000, Zipf: c.zipf, Publishers: 25, Aggregators: 1, Linger: Defaults().Linger - gap}.with(Defaults())
			l.Aggregators = 1
			million := 1e6 / c.rate
			of := func(groups int64) (shards, all float64, cost Cost) {
				l.Groups = groups
				p, err := Make(l)
				if err != nil {
					t.Fatal(err)
				}
				cost = p.Countmill
				return (cost.ShardsWritten + cost.GroupsWritten) * million, cost.PerMillion - cost.WorkersWritten*million, cost
			}
			without, allWithout, _ := of(0)
			with, allWith, cost := of(100)
			near(t, "shards", with, c.with, 0.05)
			near(t, "what the index adds", with-without, c.with-c.without, 0.15)
			near(t, "commits", cost.Commits*million, c.commits, 0.08)
			near(t, "all", allWith, c.with+c.markers, 0.04)
			near(t, "times the entities", allWith/allWithout, (c.with+c.markers)/(c.without+c.markers), 0.025)
		})
	}
}

// In these rows publishers are in step, so the content of a window is known.
func TestMeasuredGroupsOfWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		zipf, increments    float64 // of a batch
		commits, ofOneGroup float64
	}{
		{"uniform, 10", 0, 10, 1, 1}, {"uniform, 100", 0, 100, 8.6, 2.59}, {"uniform, 1,000", 0, 1000, 36, 2.28}, {"uniform, 5,000", 0, 5000, 43, 1.66},
		{"Zipf, 10", 1.1, 10, 1, 1}, {"Zipf, 100", 1.1, 100, 4.1, 1.60}, {"Zipf, 1,000", 1.1, 1000, 14.2, 1.89}, {"Zipf, 5,000", 1.1, 5000, 29.9, 1.80},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := Defaults()
			l.Counters, l.Zipf, l.Groups = 10_000, c.zipf, 100
			of := classes(l.Counters, l.Zipf)
			b := l.batch(of, c.increments)
			w := pack(of, b, 25, 0)
			written := 0.0
			for _, g := range b.groups {
				written += g.counters * drawn(g.share, 25*c.increments)
			}
			near(t, "commits that write one group", w.groups/written, c.ofOneGroup, 0.12)
		})
	}
}

// An index costs sums in commits, shards and records of groups, and the reads of workers.
func TestPlannedIndex(t *testing.T) {
	t.Parallel()
	of := func(groups, counters int64) Cost {
		return planned(t, func(l *Load) {
			l.Rate, l.Counters, l.Groups, l.IndexCounters, l.Aggregators = 10_000, 100_000, groups, counters, 2
		}).Countmill
	}
	none, all, some := of(0, 0), of(100, 0), of(100, 1000)
	if none.GroupsWritten != 0 || none.IndexRead != 0 || none.IndexBuild != (Build{}) || some.GroupsWritten <= 0 || all.GroupsWritten <= some.GroupsWritten {
		t.Errorf("no index, 1,000 and 100,000 counters: %g, %g and %g groups written/s, want 0 and more each time", none.GroupsWritten, some.GroupsWritten, all.GroupsWritten)
	}
	near(t, "entities written", all.EntitiesWritten, all.ShardsWritten+all.GroupsWritten+all.MarkersWritten+all.WorkersWritten, 1e-9)
	near(t, "records", all.Records, 100_100, 1e-9)
	if grown := all.Shards - none.Shards; grown < 100 || all.MostShards < 2 {
		t.Errorf("%g shards of 100 groups, and %g of the busiest, want more: all commits write each group", grown, all.MostShards)
	}
	// Each counter has a shard. 1,000 shards of a group are in all 16 ranges, and 10 are in 7.6.
	remainders, fewer := 1600.0, 100*16*(1-math.Pow(15.0/16, 10))
	near(t, "remainders", all.IndexBuild.Remainders, remainders, 1e-9)
	near(t, "remainders of 1,000 counters", some.IndexBuild.Remainders, fewer, 1e-9)
	near(t, "entities read by a build", all.IndexBuild.Read, 100_000+100+remainders, 1e-9)
	near(t, "entities read by a build of 1,000 counters", some.IndexBuild.Read, 1000+100+fewer, 1e-9)
	near(t, "entities written by a build", all.IndexBuild.Written, 2*remainders, 1e-9)
	near(t, "dollars of a build", all.IndexBuild.Dollars, (101_700*0.06+3200*0.18)/100_000, 1e-9)
	near(t, "entities read by workers", all.IndexRead, 101_700/86_400.0+0.2, 1e-9)
	near(t, "stored bytes", all.StoredBytes-none.StoredBytes,
		(all.Shards-none.Shards)*Defaults().shardBytes()+100*Defaults().recordBytes()+100_000*11+remainders*101, 1e-9)
	if all.Month.Reads <= none.Month.Reads || all.Month.Writes <= none.Month.Writes {
		t.Errorf("an index adds nothing to the bill: %+v, without %+v", all.Month, none.Month)
	}
}

// An aggregator reads the record of a group once an hour, like that of a counter that it folds all the time.
func TestRecordsOfGroups(t *testing.T) {
	t.Parallel()
	of := func(groups int64) float64 {
		return planned(t, func(l *Load) { l.Rate, l.Counters, l.Groups, l.Aggregators = 10_000, 50, groups, 3 }).Countmill.RecordsRead
	}
	near(t, "records", of(20)-of(0), 3*20/3600.0, 0.01)
}

// A group that many aggregators write needs shards like any counter, and the notes have its cost.
func TestIndexNotes(t *testing.T) {
	t.Parallel()
	p := planned(t, func(l *Load) { l.Rate, l.Counters, l.Publishers, l.Aggregators, l.Groups = 1e6, 10_000, 100, 40, 20 })
	p.wantNote(t, "and writes 640, for ")
	p.wantNote(t, "128 shards, which a counter gets by itself, are too few for 20 of the groups")
	if p = planned(t, func(l *Load) {}); strings.Contains(strings.Join(p.Notes, "\n"), "index") {
		t.Errorf("%q, without an index", p.Notes)
	}
}
