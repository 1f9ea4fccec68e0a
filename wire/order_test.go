package wire

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Counters of one group are neighbours, even if other counters have hashes in between.
func TestOrderKeepsGroupsTogether(t *testing.T) {
	t.Parallel()
	const groups, each = 50, 20
	var entries []Entry
	for i := range groups * each {
		entries = append(entries, Entry{fmt.Sprintf("page:g%d:/%d", i%groups, i), 1})
	}
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	SortEntries(entries)
	changes, last := 0, ""
	for _, e := range entries {
		if group := e.Counter[:groupLen(e.Counter)]; group != last {
			changes, last = changes+1, group
		}
	}
	if changes != groups {
		t.Errorf("%d counters of %d groups have %d runs of one group, want %d", groups*each, groups, changes, groups)
	}
}

func TestSortPlaces(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 255, 256, 5000} {
		for shift := 0; shift < 64; shift += 8 {
			places := make([]place, n)
			for i := range places {
				places[i] = place{r.Uint64N(200) << shift, i}
			}
			want := slices.Clone(places)
			slices.SortStableFunc(want, func(a, b place) int { return cmp.Compare(a.order, b.order) })
			if got := sortPlaces(places); !slices.Equal(got, want) {
				t.Errorf("%d orders that differ from bit %d on: got %v, want %v", n, shift, got, want)
			}
		}
	}
}
