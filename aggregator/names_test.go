package aggregator

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
			if got, at := names.get(c); got != want[c] || at != ages[c] {
				t.Fatalf("%q: got %d asked for at %d, want %d at %d", c, got, at, want[c], ages[c])
			}
			want[c], ages[c] = 1+random.IntN(999), age(random.Uint32())
			names.put(c, want[c], ages[c])
		}
		if names.n != len(want) {
			t.Errorf("holds %d names, want %d", names.n, len(want))
		}
		names.clear()
		clear(want)
		clear(ages)
	}
}

// Two names whose slots hold the same of them are told apart; slots are reached round the
// end of the table.
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
		hash := place(c)
		s := slot{hash & last, check(hash)}
		if s.at == last {
			atLast = append(atLast, c)
		}
		if seen[s] != "" {
			one, other = seen[s], c
		}
		seen[s] = c
	}
	names.put(one, 1, 0)
	if got, _ := names.get(other); got != 0 {
		t.Errorf("%q is taken for %q", other, one)
	}
	want := map[string]int{one: 1, other: 2}
	names.put(other, 2, 0)
	for i, c := range atLast {
		names.put(c, 3+i, 0)
		want[c] = 3 + i
	}
	for c, n := range want {
		if got, _ := names.get(c); got != n {
			t.Errorf("%q: got %d, want %d", c, got, n)
		}
	}
}

func TestNamesGrow(t *testing.T) {
	t.Parallel()
	names := newNames()
	const n = 20_000
	for i := range n {
		c := fmt.Sprint("c", i)
		names.put(c, i%999+1, age(i))
	}
	for i := range n {
		c := fmt.Sprint("c", i)
		if got, asked := names.get(c); got != i%999+1 || asked != age(i) {
			t.Fatalf("%q: got %d, want %d", c, got, i%999+1)
		}
	}
	if n, _ := names.get("stranger"); n != 0 {
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
		names.put(c, 1, 0)
	}
	window := adds[:100_000]
	slices.SortFunc(window, compareAdds)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		a := &window[i%len(window)]
		if n, _ := names.get(a.Counter); n != 1 {
			b.Fatal("not found")
		}
	}
}
