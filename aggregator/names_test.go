package aggregator

import (
	"fmt"
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
