package publisher

import (
	"slices"
	"strconv"
	"testing"

	"github.com/countmill/countmill/wire"
)

// Two counters with one place must not share a cell: increments of one would be counted on the
// other.
func TestCountersOfOnePlaceHaveTheirOwnCells(t *testing.T) {
	t.Parallel()
	table := newTable(2)
	const place = 7
	cells := []*cell{{counter: "a"}, {counter: "b"}}
	for i, c := range cells {
		if got := table.find(place, c.counter); got != nil {
			t.Errorf("%q: found %q before it was there", c.counter, got.counter)
		}
		table.insert(place, c)
		for _, there := range cells[:i+1] {
			if got := table.find(place, there.counter); got != there {
				t.Errorf("%q: found %v", there.counter, got)
			}
		}
	}
}

// Anyone can construct counters whose hashes begin and end alike, and no hash without a secret
// separates them. Each look-up of one would then pass all the others.
func TestCountersMadeUpToCollideAreSpread(t *testing.T) {
	t.Parallel()
	const n = 128
	p := open(t, newBus(t), Config{})
	for i, made := 0, 0; made < n; i++ {
		name := strconv.Itoa(i)
		if hash := wire.HashCounter(name); hash>>58 == 0 && hash&1023 == 0 {
			must(t, p.Add(name, 1))
			made++
		}
	}
	steps := 0
	for i := range p.stripes {
		table := p.stripes[i].table.Load()
		for at := 0; table != nil && at < len(table.slots); at++ {
			if slot := &table.slots[at]; slot.cell.Load() != nil {
				steps += int((uint64(at) - slot.place) & table.mask)
			}
		}
	}
	if steps > 8*n {
		t.Errorf("finding %d counters goes past %d others", n, steps)
	}
	closeNow(t, p)
}

// Sums beyond wire.MaxSum need one layer each, and nothing else does.
func TestLayersAreAsManyAsTheDeepestCounterNeeds(t *testing.T) {
	t.Parallel()
	items := func(counter string, deltas ...int64) (items []item) {
		for _, d := range deltas {
			items = append(items, item{counter: counter, delta: d})
		}
		return items
	}
	for name, c := range map[string]struct {
		items []item
		want  []int // entries of each layer
	}{
		"small sums":      {slices.Concat(items("a", 1, 2), items("b", 3), items("c", 4)), []int{3}},
		"a sum of 0":      {slices.Concat(items("a", 1, -1), items("b", 3)), []int{1}},
		"one sum beyond":  {items("a", wire.MaxSum, 2), []int{1, 1}},
		"a sum beyond":    {slices.Concat(items("a", wire.MaxSum, 2), items("b", 3)), []int{2, 1}},
		"two sums beyond": {slices.Concat(items("a", wire.MaxSum, 2), items("b", wire.MaxSum, wire.MaxSum, 1)), []int{2, 2, 1}},
	} {
		var got []int
		h := newDrain()
		for _, it := range c.items {
			h.add(it)
		}
		for _, layer := range h.layers() {
			got = append(got, len(layer))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: layers of %v entries, want %v", name, got, c.want)
		}
	}
}

// The memory of a flush is used again, without its references. It is released if the next flush
// needs little of it.
func TestReuse(t *testing.T) {
	t.Parallel()
	large := make([]item, 100)
	for i := range large {
		large[i].counter = "a"
	}
	again := reuse(large)
	if len(again) != 0 || cap(again) != 100 || again[:100][99].counter != "" {
		t.Errorf("%d of %d kept, the last with %q, want none of 100, and no counter", len(again), cap(again), again[:cap(again)][99].counter)
	}
	if again = reuse(again[:24]); again != nil {
		t.Errorf("memory for %d kept after 24", cap(again))
	}
}
