package aggregator

import (
	"math/rand/v2"
	"testing"
)

func TestHashSetCountsDistinctHashes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var set hashSet
	for round, size := range []int{1000, 3, 0, 1, 5000, 1} {
		want := make(map[uint64]bool)
		for range size {
			hash := random.Uint64() &^ (1<<random.IntN(64) - 1) // many equal hashes, and many with equal low bits
			if hash == 0 {
				hash = 1 // the two count as one
			}
			want[hash] = true
			set.add(hash)
			set.add(hash)
		}
		if set.n != len(want) {
			t.Errorf("round %d: counted %d hashes, want %d", round, set.n, len(want))
		}
		set.clear()
		if set.n != 0 {
			t.Errorf("round %d: holds %d hashes after clear", round, set.n)
		}
	}
	set.add(0)
	set.add(1)
	if set.n != 1 {
		t.Errorf("hashes 0 and 1 count as %d, want 1", set.n)
	}
}

// The memory of a large window is not cleared again and again for small windows.
func TestHashSetShrinks(t *testing.T) {
	t.Parallel()
	var set hashSet
	for hash := range uint64(100_000) {
		set.add(hash * 0x9e3779b97f4a7c15)
	}
	set.clear()
	for range 10 {
		set.add(1)
		set.clear()
	}
	if len(set.slots) > minHashSlots {
		t.Errorf("%d slots after sets of 1, want %d", len(set.slots), minHashSlots)
	}
}

// BenchmarkHashSet is one hash of a window of 100,000.
func BenchmarkHashSet(b *testing.B) {
	var set hashSet
	b.ReportAllocs()
	for i := range b.N {
		if i%100_000 == 0 {
			set.clear()
		}
		set.add(uint64(i%100_000+1) * 0x9e3779b97f4a7c15)
	}
}

// The number of slots is a power of two, and the number of hashes closes a window.
func TestHashSetCountsThroughGrowthAndShrinkage(t *testing.T) {
	t.Parallel()
	var s hashSet
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{100_000, 10, 3, 5_000, 70, 1} {
		for range 2 {
			rng := rand.New(rand.NewPCG(uint64(n), 0))
			for range n {
				s.add(rng.Uint64() | 2) // none is 0 or 1
			}
		}
		if s.n != n {
			t.Errorf("%d hashes counted, want %d", s.n, n)
		}
		s.clear()
		if size := len(s.slots); size&(size-1) != 0 || s.n != 0 {
			t.Errorf("after %d: %d slots, %d taken; want a power of two, none taken", n, size, s.n)
		}
	}
	s.add(0)
	s.add(0)
	s.add(rng.Uint64() | 2)
	if s.n != 2 {
		t.Errorf("%d hashes counted, want 2", s.n)
	}
}
