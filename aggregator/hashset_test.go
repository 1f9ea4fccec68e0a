package aggregator

import (
	"math/rand/v2"
	"testing"
)

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

// The number of hashes closes a window. The number of slots is a power of two.
func TestHashSetCountsDistinctHashes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var set hashSet
	for round, size := range []int{100_000, 10, 0, 5_000, 70, 1} {
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
		if set.clear(); set.n != 0 || len(set.slots)&(len(set.slots)-1) != 0 {
			t.Errorf("round %d: %d hashes and %d slots after clear, want none and a power of two", round, set.n, len(set.slots))
		}
	}
	set.add(0)
	set.add(1)
	if set.n != 1 {
		t.Errorf("hashes 0 and 1 count as %d, want 1", set.n)
	}
}
