package cost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/internal/plan"
)

// A worker reads as many shards, and sets as many remainders, as countmill plan has for the build of an index. A recheck
// reads the shards again, and sets nothing.
func TestIndexBuild(t *testing.T) {
	const counters = 3000
	for _, of := range []int{1, 20, 500, counters} {
		synctest.Test(t, func(t *testing.T) {
			names, _ := groupedNames(counters, of)
			p := open(t, setup{publishers: 4, aggregators: 1})
			p.warm(names)
			if _, err := p.store.ChangeRules(t.Context(), groupedIndex); err != nil {
				t.Fatal(err)
			}
			x := indexer.New(p.store, indexer.Config{WorkerID: "w", Recheck: 24 * time.Hour})
			p.index(x)
			built := x.Stats()
			time.Sleep(25 * time.Hour)
			p.index(x)
			rechecked := x.Stats()
			p.close()

			l := plan.Defaults()
			l.Rate, l.Counters, l.Groups = 1, counters, int64(of)
			planned, err := plan.Make(l)
			if err != nil {
				t.Fatal(err)
			}
			c := planned.Countmill
			within(t, "shards read by a build", float64(built.Shards), c.IndexBuild.Shards)
			within(t, "remainders set by a build", float64(built.Remainders), c.IndexBuild.Remainders)
			if rechecked.Shards != 2*built.Shards || rechecked.Remainders != built.Remainders {
				t.Errorf("%d groups: a recheck reads %d shards and sets %d remainders, want %d and 0", of, rechecked.Shards-built.Shards, rechecked.Remainders-built.Remainders, built.Shards)
			}
		})
	}
}

// index works until an hour has no work.
func (p *pipeline) index(x *indexer.Indexer) {
	p.t.Helper()
	for idle := 0; idle < 60; {
		worked, err := x.Step(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		if idle++; worked {
			idle = 0
		}
		time.Sleep(time.Minute)
	}
	if s := x.Stats(); s.Serving != 1 {
		p.t.Fatalf("the index does not serve: %+v", s)
	}
}
