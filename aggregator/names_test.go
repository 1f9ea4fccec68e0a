package aggregator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/countmill/countmill/wire"
)

// names agrees with a map, while it is filled, emptied and filled again.
func TestNamesAgreeWithAMap(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	names, want, ages := newNames(), make(map[string]int), make(map[string]age)
	for _, n := range []int{400, 5000, 400} {
		for range n {
			c := strings.Repeat("x", random.IntN(3)) + fmt.Sprint(random.IntN(n))
			if got, at := names.get(wire.HashCounter(c), c); got != want[c] || at != ages[c] {
				t.Fatalf("%q: got %d asked for at %d, want %d at %d", c, got, at, want[c], ages[c])
			}
			want[c], ages[c] = 1+random.IntN(999), age(random.Uint32())
			names.put(wire.HashCounter(c), c, want[c], ages[c])
		}
		if names.n != len(want) {
			t.Errorf("holds %d names, want %d", names.n, len(want))
		}
		names.clear()
		clear(want)
		clear(ages)
	}
}

// Two names with equal slots are distinguished; probing continues past the end of the table.
func TestNamesThatCollide(t *testing.T) {
	t.Parallel()
	names := newNames()
	last := uint64(len(names.slots) - 1)
	type slot struct {
		at    uint64
		check uint16
	}
	seen := make(map[slot]string)
	var atLast []string
	var one, other string
	for i := 0; one == "" || len(atLast) < 3; i++ {
		c := fmt.Sprintf("c%08d", i)
		hash := wire.HashCounter(c)
		s := slot{hash / (math.MaxUint64/(last+1) + 1), check(place(c))}
		if s.at == last {
			atLast = append(atLast, c)
		}
		if seen[s] != "" {
			one, other = seen[s], c
		}
		seen[s] = c
	}
	put := func(c string, shards int) { names.put(wire.HashCounter(c), c, shards, 0) }
	put(one, 1)
	if got, _ := names.get(wire.HashCounter(other), other); got != 0 {
		t.Errorf("%q is taken for %q", other, one)
	}
	want := map[string]int{one: 1, other: 2}
	put(other, 2)
	for i, c := range atLast {
		put(c, 3+i)
		want[c] = 3 + i
	}
	for c, n := range want {
		if got, _ := names.get(wire.HashCounter(c), c); got != n {
			t.Errorf("%q: got %d, want %d", c, got, n)
		}
	}
	if names.slots[last].at == 0 || names.slots[0].at == 0 || names.slots[1].at == 0 {
		t.Error("three names that belong to the last slot did not go on at the first: this tries nothing")
	}
}

func TestNamesGrow(t *testing.T) {
	t.Parallel()
	names := newNames()
	const n = 20_000
	for i := range n {
		c := fmt.Sprint("c", i)
		names.put(wire.HashCounter(c), c, i%999+1, age(i))
	}
	for i := range n {
		c := fmt.Sprint("c", i)
		if got, asked := names.get(wire.HashCounter(c), c); got != i%999+1 || asked != age(i) {
			t.Fatalf("%q: got %d, want %d", c, got, i%999+1)
		}
	}
	if n, _ := names.get(wire.HashCounter("stranger"), "stranger"); n != 0 {
		t.Error("has a name that was never put")
	}
	if names.beyond > n/50 {
		t.Errorf("%d of %d names found the slots taken where they belong, want hardly any", names.beyond, n)
	}
	if 2*names.n > len(names.slots) {
		t.Errorf("%d names in %d slots, want at most half of them taken", names.n, len(names.slots))
	}
}
