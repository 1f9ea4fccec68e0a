package aggregator

import (
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
