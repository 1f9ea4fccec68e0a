package aggregator

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func sums(parts []*part) map[string]int64 {
	total := make(map[string]int64)
	for _, p := range parts {
		for _, e := range p.Entries {
			total[e.Counter] += e.Delta
		}
	}
	return total
}

// Runs are merged or sorted, with the same result.
func TestSortRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var adds, want []store.ShardDelta
		var runs []int
		for range rng.IntN(12) {
			run := make([]store.ShardDelta, 1+rng.IntN(1<<rng.IntN(13)))
			for i := range run {
				run[i] = store.ShardDelta{Counter: fmt.Sprint(rng.IntN(200)), Order: rng.Uint64N(1000), Delta: rng.Int64()}
			}
			slices.SortFunc(run, compareAdds)
			runs = append(runs, len(adds))
			adds = append(adds, run...)
		}
		byAll := func(a, b store.ShardDelta) int { return cmp.Or(compareAdds(a, b), cmp.Compare(a.Delta, b.Delta)) }
		want = slices.SortedFunc(slices.Values(adds), byAll)
		got := sortRuns(adds, runs)
		if !slices.IsSortedFunc(got, compareAdds) {
			t.Fatalf("seed %d: not in key order", seed)
		}
		slices.SortFunc(got, byAll)
		if !slices.Equal(want, got) {
			t.Fatalf("seed %d: got %d adds, not those %d that there were", seed, len(got), len(want))
		}
	}
}

type fakeRecorder struct {
	shards map[string]int
	during func() // nil, or called by each look-up
	looked int
	raised []store.Growth
}

func (f *fakeRecorder) Shards(_ context.Context, counters []string) ([]int, error) {
	f.looked += len(counters)
	if f.during != nil {
		f.during()
	}
	found := make([]int, len(counters))
	for i, c := range counters {
		found[i] = f.shards[c]
	}
	return found, nil
}

func (f *fakeRecorder) Grow(_ context.Context, growths []store.Growth) error {
	f.raised = append(f.raised, growths...)
	for _, r := range growths {
		f.shards[r.Counter] = max(f.shards[r.Counter], r.Shards)
	}
	return nil
}

// toShard0 is an add to shard 0 of each counter.
func toShard0(counters ...string) []store.ShardDelta {
	adds := make([]store.ShardDelta, len(counters))
	for i, c := range counters {
		adds[i] = store.NewShardDelta(c, 0, 0)
	}
	return adds
}

func TestRecordsAreWrittenOnceAndRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	st := &fakeRecorder{shards: map[string]int{"old": 40}}
	r := newRecords(st, 2, 20, 100, newAging(time.Now))
	for range 2 {
		k, _, err := r.learn(t.Context(), toShard0("a", "old", "b"), time.Hour)
		if err != nil || !slices.Equal(k.shards, []int{20, 40, 20}) {
			t.Errorf("got shards %v, %v, want 20, 40, 20", k.shards, err)
		}
	}
	if st.looked != 3 || len(st.raised) != 2 {
		t.Errorf("looked %d records up and wrote %d, want 3 and 2", st.looked, len(st.raised))
	}
	for i := range 1000 {
		if _, _, err := r.learn(t.Context(), toShard0(fmt.Sprint("c", i), "a"), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.newer.n + r.older.n; n > 100 {
		t.Errorf("remembers %d counters, at most 100", n)
	}
	if st.looked != 1003 {
		t.Errorf("looked up %d records, want 1003: a record that is used is not forgotten", st.looked)
	}
}

// Records that were read or written before all were forgotten are not remembered after it.
func TestRecordsUnderWayAreForgotten(t *testing.T) {
	t.Parallel()
	st := &fakeRecorder{shards: map[string]int{"a": 7}}
	r := newRecords(st, 2, 3, 100, newAging(time.Now))
	st.during = r.forget
	for want := 1; want < 3; want++ {
		if k, _, err := r.learn(t.Context(), toShard0("a"), time.Hour); err != nil || !slices.Equal(k.shards, []int{7}) || st.looked != want {
			t.Errorf("got %v, %v after %d look-ups; want 7 shards after %d", k.shards, err, st.looked, want)
		}
	}
	k, growths := r.guess(toShard0("b"))
	r.forget()
	r.remember(growths, 0, k.forgotten)
	if _, growths = r.guess(toShard0("b")); len(growths) != 1 {
		t.Errorf("got growths %v after a fold that began before, want one", growths)
	}
}

// The text of names is in the order in which commits look them up. In another order each look-up misses the CPU's cache.
func TestRecordsRememberNamesInTheOrderOfHashes(t *testing.T) {
	t.Parallel()
	r := newRecords(nil, 2, 1, 1000, newAging(time.Now))
	var growths []store.Growth
	for i := range 100 {
		growths = append(growths, store.Growth{Counter: fmt.Sprint(i), Shards: 1})
	}
	r.remember(growths, 0, 0)
	last := uint32(0)
	for _, s := range r.newer.slots { // which are in that order
		if s.at != 0 && s.at < last {
			t.Fatalf("the text of a name is before that of a smaller hash")
		}
		last = max(last, s.at)
	}
	if last == 0 {
		t.Error("no name is remembered")
	}
}

// Long names are forgotten sooner, because the memory is bounded in bytes.
func TestRecordsRememberFewerLongNames(t *testing.T) {
	t.Parallel()
	r := newRecords(nil, 2, 1, 1000, newAging(time.Now))
	for i := range 1000 {
		r.remember([]store.Growth{{Counter: fmt.Sprintf("%0500d", i), Shards: 1}}, 0, 0)
	}
	if n := len(r.newer.text) + len(r.older.text); n > 1000*nameRoom+2*502 {
		t.Errorf("keeps %d bytes of names, want at most %d for each of 1000", n, nameRoom)
	}
	last := fmt.Sprintf("%0500d", 999)
	if n, _ := r.newer.get(wire.HashCounter(last), last); n != 1 {
		t.Errorf("the newest has %d shards, want 1", n)
	}
}

// A window must forget the counters of the one before, else it would close earlier each time.
func TestAnEmptiedWindowHasRoomAgain(t *testing.T) {
	t.Parallel()
	var w window
	cfg := Config{WindowMessages: 100, WindowCounters: 3, WindowMemory: 100}
	for i := range 10 {
		w.add(&part{Part: wire.Part{Entries: []wire.Entry{{Counter: fmt.Sprint("c", i), Delta: 1}}}}, time.Now())
		if w.full(&cfg) {
			t.Fatalf("window %d is full with one counter of 3", i)
		}
		if got := len(w.take()); got != 1 {
			t.Fatalf("window %d had %d parts, want 1", i, got)
		}
	}
}
