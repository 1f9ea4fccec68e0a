package aggregator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/wire"
)

// names agrees with a map, also where hashes collide and where slots are reached round
// the end of the table.
func TestNamesAgreeWithAMap(t *testing.T) {
	t.Parallel()
	for name, hash := range map[string]func(string) uint64{
		"own":       wire.HashCounter,
		"one slot":  func(c string) uint64 { return wire.HashCounter(c) | minNameSlots - 1 },
		"same":      func(string) uint64 { return 1<<64 - 1 },
		"neighbour": func(c string) uint64 { return uint64(len(c)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			names, want := newNames(), make(map[string]int)
			for range 2 {
				for range 400 { // not enough to make the table larger: that needs the true hashes
					c := strings.Repeat("x", random.IntN(3)) + fmt.Sprint(random.IntN(500))
					if got := names.get(hash(c), c); got != want[c] {
						t.Fatalf("%q: got %d, want %d", c, got, want[c])
					}
					want[c] = 1 + random.IntN(999)
					names.put(hash(c), c, want[c])
				}
				if names.n != len(want) {
					t.Errorf("holds %d names, want %d", names.n, len(want))
				}
				names.clear()
				clear(want)
			}
		})
	}
}

func TestNamesGrow(t *testing.T) {
	t.Parallel()
	names := newNames()
	const n = 20_000
	for i := range n {
		c := fmt.Sprint("c", i)
		names.put(wire.HashCounter(c), c, i%999+1)
	}
	for i := range n {
		c := fmt.Sprint("c", i)
		if got := names.get(wire.HashCounter(c), c); got != i%999+1 {
			t.Fatalf("%q: got %d, want %d", c, got, i%999+1)
		}
	}
	if c := "stranger"; names.get(wire.HashCounter(c), c) != 0 {
		t.Error("knows a name that nobody told it")
	}
	if 2*names.n > len(names.slots) {
		t.Errorf("%d names in %d slots, want at most half of them taken", names.n, len(names.slots))
	}
}

// BenchmarkNames is one name of a window of 100,000 in the order of hashes, of a million
// that are remembered.
func BenchmarkNames(b *testing.B) {
	adds := make([]Add, 1_000_000)
	names := newNames()
	for i := range adds {
		c := fmt.Sprintf("counter-name-%07d", i)
		adds[i] = Add{Counter: c, Hash: wire.HashCounter(c)}
		names.put(adds[i].Hash, c, 1)
	}
	window := adds[:100_000]
	slices.SortFunc(window, compareAdds)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if a := &window[i%len(window)]; names.get(a.Hash, a.Counter) != 1 {
			b.Fatal("not found")
		}
	}
}
