package aggregator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Days of the archive count as entities of a commit, and its minutes are bounded.
func TestPackCountsTheArchive(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ring := store.Ring{Buckets: 2, Window: time.Hour, Minutes: 7}
	rules := &store.Rules{Series: []store.Rule{{Pattern: "c1*"}}}
	most := 0
	for seed := range uint64(200) {
		if seed == 100 { // without a ring
			ring = store.Ring{}
		}
		rng := rand.New(rand.NewPCG(seed, 3))
		parts := randomParts(rng, 1+rng.IntN(60), 1+rng.IntN(80))
		for _, p := range parts {
			p.minute = wire.MinuteOf(now) - wire.Minute(rng.IntN(3*store.DayMinutes))
		}
		late := &lateness{rules: rules, before: ring.Archive(now), most: ring.Minutes, days: map[lateDay]struct{}{}, minutes: map[wire.Minute]struct{}{}}
		if ring.Buckets == 0 {
			late.before = math.MaxInt32
		}
		packed := 0
		for _, j := range pack(parts, 60, late, nil, nil) {
			entities, minutes := make(map[string]bool), make(map[wire.Minute]bool)
			for _, p := range j.parts {
				minutes[p.minute] = true
				for _, e := range p.Entries {
					entities[e.Counter] = true
					if p.minute < j.archive && rules.SeriesOf(e.Counter) != nil {
						entities[fmt.Sprint(e.Counter, " on ", p.minute/store.DayMinutes)] = true
					}
				}
			}
			n := len(j.parts) + len(entities)
			if most = max(most, n); n > 60 || n > j.entities || ring.Minutes > 0 && len(minutes) > ring.Minutes {
				t.Errorf("seed %d: a job of %d entities (it says %d) and %d minutes", seed, n, j.entities, len(minutes))
			}
			packed += len(j.parts)
		}
		if packed != len(parts) {
			t.Errorf("seed %d: %d parts are in jobs, want %d", seed, packed, len(parts))
		}
	}
	if most < 50 {
		t.Errorf("the largest job has %d entities: nothing was packed", most)
	}
}
