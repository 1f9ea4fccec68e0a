package cost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/indexer"
)

// A worker reads each shard once for the build of an index. It sets a remainder for each group and piece with counters
// of the group. A recheck reads the shards again, and sets nothing.
func TestIndexBuild(t *testing.T) {
	const counters, pieces = 3000, 16
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

			most := min(int64(pieces*of), counters)
			if built.Shards != counters || built.Remainders > most || float64(built.Remainders) < 0.8*float64(most) {
				t.Errorf("%d groups: a build reads %d shards and sets %d remainders, want %d and up to %d", of, built.Shards, built.Remainders, counters, most)
			}
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
