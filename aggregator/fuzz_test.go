package aggregator

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/wire"
)

// drawnParts makes parts with the ids 0, 1, ... of text: two bytes an entry, a counter and
// a delta; a part ends where a counter comes again or a byte has its highest bits set.
func drawnParts(text []byte) []*part {
	var parts []*part
	p := &part{}
	end := func() {
		if len(p.Entries) == 0 {
			return
		}
		p.ID[0], p.ID[1] = byte(len(parts)>>8), byte(len(parts))
		p.marked = len(parts)%3 != 0
		parts = append(parts, p)
		p = &part{}
	}
	for ; len(text) >= 2; text = text[2:] {
		counter := fmt.Sprint("c", text[0])
		has := slices.ContainsFunc(p.Entries, func(e wire.Entry) bool { return e.Counter == counter })
		if has || len(p.Entries) == wire.MaxEntries || text[1]&0xe0 == 0xe0 {
			end()
		}
		delta := int64(int8(text[1])) | 1
		p.Entries = append(p.Entries, wire.Entry{Counter: counter, Delta: delta << (text[1] % 50)})
	}
	end()
	return parts
}

// FuzzPlan: parts in any order, cut into windows, jobs and halves in any way, sum to the same
// totals. Each commit fits the store, and has no id and no shard twice.
func FuzzPlan(f *testing.F) {
	f.Add([]byte("abcdefghijklmnopaaaabbbb"), uint64(1))
	many := make([]byte, 1600)
	for i := range many {
		many[i] = byte(i * i >> 3)
	}
	for seed := range uint64(8) {
		f.Add(many, seed)
	}
	for i := range many {
		many[i] = byte(i/2*(1-i%2)) | byte(i%2) // entries of one counter after the other
	}
	for seed := range uint64(8) {
		f.Add(many, seed)
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		parts := drawnParts(text)
		want := sums(parts)
		maps.DeleteFunc(want, func(_ string, n int64) bool { return n == 0 })
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		limit := []int{0, 25, 40, 400}[rng.IntN(4)]

		got := make(map[string]int64)
		seen := make(map[wire.PartID]bool)
		for left := parts; len(left) > 0; {
			n := 1 + rng.IntN(len(left))
			for _, j := range pack(slices.Clone(left[:n]), limit, nil, nil, nil) {
				commitAll(t, rng, j, limit, got, seen)
			}
			left = left[n:]
		}
		if len(seen) != len(parts) {
			t.Fatalf("%d parts were committed, want %d", len(seen), len(parts))
		}
		maps.DeleteFunc(got, func(_ string, n int64) bool { return n == 0 })
		if !maps.Equal(got, want) {
			t.Fatalf("got totals %v, want %v", got, want)
		}
	})
}

// commitAll commits a job, at times in halves or one part at a time, on random shards.
func commitAll(t *testing.T, rng *rand.Rand, j *job, limit int, got map[string]int64, seen map[wire.PartID]bool) {
	t.Helper()
	adds := merge(j.parts)
	if cut := rng.IntN(4); len(j.parts) > 1 && cut < 2 {
		pieces := j.halve()
		if cut == 1 {
			pieces = j.singles()
		}
		for _, half := range pieces {
			commitAll(t, rng, half, limit, got, seen)
		}
		return
	}
	l := testInflight(Config{env: &clock.Env{Random: rng}, ShardRate: 1 - 2*float64(rng.IntN(2))})
	shards := make([]int, len(adds))
	for i := range shards {
		shards[i] = 1 + rng.IntN(4)
	}
	if _, ok := l.acquire(adds, shards); !ok {
		t.Fatal("no shard is free where nothing is under way")
	}
	if !slices.IsSortedFunc(adds, compareAdds) {
		t.Fatal("the adds are not in the order of keys")
	}
	entities := len(adds)
	for i, a := range adds {
		if i > 0 && adds[i-1].Counter == a.Counter && adds[i-1].Shard == a.Shard {
			t.Fatalf("shard %d of %s is there twice", a.Shard, a.Counter)
		}
		got[a.Counter] += a.Delta
	}
	for _, p := range j.parts {
		if seen[p.ID] {
			t.Fatalf("part %s is committed twice", p.ID)
		}
		if seen[p.ID] = true; p.marked {
			entities++
		}
	}
	if limit > 0 && entities > limit {
		t.Fatalf("a commit of %d entities, limit %d", entities, limit)
	}
}
