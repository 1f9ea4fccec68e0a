package aggregator_test

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A troublesome store answers at random for a while.
type trouble struct {
	mu  sync.Mutex
	rng *rand.Rand
	off bool
}

func (tr *trouble) answer(answers ...fakestore.Answer) fakestore.Answer {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.off || tr.rng.IntN(3) > 0 {
		return fakestore.OK
	}
	return answers[tr.rng.IntN(len(answers))]
}

func (tr *trouble) end() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.off = true
}

// For all answers of the store and all redeliveries the totals are the sums of the distinct
// increments.
func TestTotalsAreExactUnderRandomTrouble(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 20
	}
	first := rand.Uint64()
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { troubledRun(t, seed) })
		})
	}
}

func troubledRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	st := strict(t, fakestore.Options{
		Entities: []int{25, 60, 400}[rng.IntN(3)], Shards: []int{1, 4, 20}[rng.IntN(3)],
		Latency: time.Duration(rng.IntN(50)) * time.Millisecond,
	})
	journaled := st.Limits().Entities > 25 && rng.IntN(2) == 0 // a part with a record has more than 25
	if journaled {
		keepJournal(t, st, "c1*", "400d,paged")
		keepJournal(t, st, "c2*", "30d")
	}
	tr := &trouble{rng: rand.New(rand.NewPCG(seed, 1))}
	st.OnFold(func(int, *store.Commit) fakestore.Answer {
		return tr.answer(fakestore.MarkerExists, fakestore.Deployment, fakestore.UnknownApplied,
			fakestore.UnknownNotApplied, fakestore.SlowApplied, fakestore.SlowNotApplied)
	})
	for _, op := range []fakestore.Op{fakestore.Applied, fakestore.Shards, fakestore.Grow} {
		st.On(op, func(int) fakestore.Answer {
			return tr.answer(fakestore.Deployment, fakestore.UnknownApplied, fakestore.SlowNotApplied, fakestore.Blank)
		})
	}
	r := run(t, st, aggregator.Config{
		Commits: 1 + rng.IntN(4), WindowMessages: 1 + rng.IntN(20), HeldMessages: 1 + rng.IntN(100),
	})
	want := make(map[string]int64)
	batches := randomBatches(rng, want)
	for _, at := range deliveries(rng, len(batches)) {
		r.send(t, batches[at]...)
		if rng.IntN(10) == 0 {
			settle(time.Duration(rng.IntN(3000)) * time.Millisecond)
		}
	}
	tr.end()
	settle(10 * time.Minute)
	if err := r.finish(); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	synctest.Wait()
	r.want(t, want)
	if journaled {
		wantJournal(t, st, want, "c1", "c2")
	}
	if got := r.reasons(); len(got) > 0 {
		t.Errorf("seed %d: dead letters %q", seed, got)
	}
}

// randomBatches makes batches of parts of every kind and adds them to want.
func randomBatches(rng *rand.Rand, want map[string]int64) [][]wire.Part {
	batches := make([][]wire.Part, 5+rng.IntN(25))
	for i := range batches {
		for range 1 + rng.IntN(3) {
			batches[i] = append(batches[i], randomParts(rng, i, len(batches[i]), want)...)
		}
	}
	return batches
}

func randomParts(rng *rand.Rand, batch, n int, want map[string]int64) []wire.Part {
	var incs []countmill.Increment
	for c := range 1 + rng.IntN(40) {
		inc := countmill.Increment{Counter: fmt.Sprint("c", c), Delta: rng.Int64N(100) + 1}
		if rng.IntN(4) == 0 {
			inc.ID = fmt.Sprint(batch, "-", n)
		}
		want[inc.Counter] += inc.Delta
		incs = append(incs, inc)
	}
	if rng.IntN(2) == 0 {
		parts, err := wire.CutRequest("", fmt.Sprint(batch, "-", n), incs)
		if err != nil {
			panic(err)
		}
		return parts
	}
	var parts []wire.Part
	var entries []wire.Entry
	for _, inc := range incs {
		if inc.ID != "" {
			parts = append(parts, wire.CutIdentified(inc))
			continue
		}
		entries = append(entries, wire.Entry{Counter: inc.Counter, Delta: inc.Delta})
	}
	wire.SortEntries(entries)
	return append(parts, wire.CutAnonymous(crand.Reader, entries)...)
}

// deliveries delivers each batch one to three times, in a random order.
func deliveries(rng *rand.Rand, batches int) (order []int) {
	for i := range batches {
		for range 1 + rng.IntN(3) {
			order = append(order, i)
		}
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
