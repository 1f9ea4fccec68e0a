package board

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/countmill/countmill/store"
)

func TestBoardKeepsTheBest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := 1 + random.IntN(12)
		b := NewBuilder(store.SumsQuery{}, size)
		var all []Ranked
		for i := range random.IntN(40) {
			c := Ranked{fmt.Sprintf("c%02d", i), random.Int64N(12) - 6}
			all = append(all, c)
			b.Add(&store.CounterSum{Counter: []byte(c.Counter), Sum: c.Sum})
		}
		b.Add(&store.CounterSum{Counter: []byte("over"), Overflow: true})
		got := b.Board(store.Sums{})
		slices.SortFunc(all, Compare)
		if best := all[:min(size, len(all))]; !slices.Equal(got.Best, best) || got.Counters() != len(all) || !slices.Equal(got.Overflowed, []string{"over"}) {
			t.Errorf("seed %d: best %v of %d, overflowed %v; want %v of %d", seed, got.Best, got.Counters(), got.Overflowed, best, len(all))
		}
		for _, c := range all {
			want := 1 + slices.IndexFunc(all, func(o Ranked) bool { return o.Sum == c.Sum })
			if sum, rank, overflow := got.Place(c.Counter); sum != c.Sum || rank != want || overflow {
				t.Errorf("seed %d: the place of %v is %d, %d, %t; want %d", seed, c, sum, rank, overflow, want)
			}
		}
		for counter, over := range map[string]bool{"over": true, "none": false} {
			if sum, rank, overflow := got.Place(counter); sum != 0 || rank != 0 || overflow != over {
				t.Errorf("seed %d: the place of %s is %d, %d, %t; want 0, 0, %t", seed, counter, sum, rank, overflow, over)
			}
		}
	}
}

// A board names so many overflowed counters, and knows all of them. A window has no counters with 0.
func TestBoardOfOverflowed(t *testing.T) {
	t.Parallel()
	b := NewBuilder(store.SumsQuery{To: 60}, Size)
	for i := range maxOverflowed + 1 {
		b.Add(&store.CounterSum{Counter: fmt.Appendf(nil, "c%03d", maxOverflowed-i), Overflow: true})
	}
	b.Add(&store.CounterSum{Counter: []byte("zero")})
	got := b.Board(store.Sums{})
	_, _, last := got.Place("c000")
	if len(got.Overflowed) != maxOverflowed || got.Overflowed[0] != "c001" || !last || got.Counters() != 0 {
		t.Errorf("overflowed %v, the last one %t, and %d others", got.Overflowed, last, got.Counters())
	}
}
