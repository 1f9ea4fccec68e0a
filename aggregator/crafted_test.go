package aggregator

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// crafted makes n names of 64 letters with one xxHash64. The hash feeds 8 bytes of each 32 into
// one of four sums, by steps that are all invertible. So for any first 8 bytes there are 8 bytes
// at the 32nd that lead the sum back to the same value. One in some thousand of them is text.
func crafted(n int) []string {
	const prime1, prime2 = 0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f
	start := uint64(prime1)
	start += prime2 // wraps
	round := func(sum, word uint64) uint64 { return bits.RotateLeft64(sum+word*prime2, 31) * prime1 }
	undo1, undo2 := inverse(prime1), inverse(prime2)
	want := round(round(start, binary.LittleEndian.Uint64([]byte("crafted-"))), binary.LittleEndian.Uint64([]byte("-by-hand")))

	random := rand.New(rand.NewPCG(1, 2))
	names := make([]string, 0, n)
	name := []byte("........ the second, the third, .")
	for len(name) < 64 {
		name = append(name, '-')
	}
	for len(names) < n {
		for i := range 8 {
			name[i] = 'a' + byte(random.IntN(26))
		}
		sum := round(start, binary.LittleEndian.Uint64(name))
		word := (bits.RotateLeft64(want*undo1, -31) - sum) * undo2
		binary.LittleEndian.PutUint64(name[32:], word)
		if countmill.CheckCounter(string(name)) == nil {
			names = append(names, string(name))
		}
	}
	return names
}

// inverse is the multiplicative inverse of an odd number, modulo 2^64 (Newton).
func inverse(n uint64) uint64 {
	x := n
	for range 6 {
		x *= 2 - n*x
	}
	return x
}

// longest is the longest run of taken slots, which a look-up may have to pass.
func longest(n int, taken func(int) bool) int {
	run, most := 0, 0
	for i := range 2 * n { // round the end
		if run++; !taken(i % n) {
			run = 0
		}
		most = max(most, min(run, n))
	}
	return most
}

// A look-up of names with one hash, or with neighbouring hashes, takes hardly longer than of
// others: the near slots first, and then as for other names.
func TestCraftedNamesDoNotMakeTablesSlow(t *testing.T) {
	t.Parallel()
	const n, walk = 5_000, 200 // for this number of names the longest random run is some 50
	neighbours := make([]string, 0, n)
	for i := 0; len(neighbours) < n; i++ {
		if name := "c" + strconv.Itoa(i); wire.HashCounter(name)>>48 < n/16 {
			neighbours = append(neighbours, name)
		}
	}
	one := crafted(n)
	for _, name := range one {
		if wire.HashCounter(name) != wire.HashCounter(one[0]) {
			t.Fatalf("%q and %q have two hashes: this tries nothing", name, one[0])
		}
	}
	for what, counters := range map[string][]string{"one hash": one, "neighbours": neighbours} {
		table, w := newNames(), &window{}
		for i, counter := range counters {
			table.put(wire.HashCounter(counter), counter, i%999+1, 0)
			w.add(&part{Part: wire.Part{Entries: []wire.Entry{{Counter: counter, Delta: 1}}}}, time.Time{})
		}
		for i, counter := range counters {
			if got, _ := table.get(wire.HashCounter(counter), counter); got != i%999+1 {
				t.Fatalf("%s: %q has %d shards, want %d", what, counter, got, i%999+1)
			}
		}
		if run := longest(len(table.crowded), func(i int) bool { return table.crowded[i].at != 0 }); run > walk {
			t.Errorf("%s: %d slots of names in a row are taken, want at most %d", what, run, walk)
		}
		if run := longest(len(w.counters.slots), func(i int) bool { return w.counters.slots[i] != 0 }); run > walk {
			t.Errorf("%s: %d slots of a window in a row are taken, want at most %d", what, run, walk)
		}
		if table.beyond < n/2 {
			t.Errorf("%s: %d of %d names found their slots taken, want most", what, table.beyond, n)
		}
		if w.counters.n != n {
			t.Errorf("%s: a window counts %d counters, want %d", what, w.counters.n, n)
		}
	}
}
