package aggregator

import (
	"fmt"
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
		rng := rand.New(rand.NewPCG(seed, 3))
		parts := randomParts(rng, 1+rng.IntN(60), 1+rng.IntN(80))
		for _, p := range parts {
			p.minute = wire.MinuteOf(now) - wire.Minute(rng.IntN(3*store.DayMinutes))
		}
		late := &lateness{rules: rules, before: ring.Archive(now), most: ring.Minutes, days: map[lateDay]struct{}{}, minutes: map[wire.Minute]struct{}{}}
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
			if most = max(most, n); n > 60 || n > j.entities || len(minutes) > ring.Minutes {
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

// A whole request of the past needs an entity of the archive for each counter besides its shards. If both do not
// fit one commit, the request is taken apart.
func TestAWholeRequestOfThePastIsTakenApart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ring := store.Ring{Buckets: 2, Window: time.Hour, Minutes: 7}
	rules := &store.Rules{Series: []store.Rule{{Pattern: "c*"}}}
	for name, tc := range map[string]struct {
		minute wire.Minute
		whole  bool
	}{"now": {wire.MinuteOf(now), true}, "last year": {wire.MinuteOf(now.AddDate(-1, 0, 0)), false}} {
		late := &lateness{rules: rules, before: ring.Archive(now), most: ring.Minutes, days: map[lateDay]struct{}{}, minutes: map[wire.Minute]struct{}{}}
		request := &part{marked: true, minute: tc.minute}
		for n := range 2 {
			rest := &part{Part: wire.Part{Kind: wire.Rest}, minute: tc.minute, head: request}
			for i := range 20 {
				rest.Entries = append(rest.Entries, wire.Entry{Counter: fmt.Sprint("c", n, ":", i), Delta: 1})
			}
			request.rests = append(request.rests, rest)
		}
		jobs := pack([]*part{request}, 60, late, nil, nil)
		if len(jobs) != 1 || len(jobs[0].parts) != 1 || request.whole() != tc.whole {
			t.Errorf("%s: %d jobs, whole: %t", name, len(jobs), request.whole())
		}
	}
}
