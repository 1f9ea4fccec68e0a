package publisher

import "testing"

// Two counters whose hashes are one must not share a cell: what is added to one would be
// counted on the other.
func TestCountersOfOneHashHaveTheirOwnCells(t *testing.T) {
	t.Parallel()
	table := newTable(2)
	cells := []*cell{{hash: 7, counter: "a"}, {hash: 7, counter: "b"}}
	for i, c := range cells {
		if got := table.find(c.hash, c.counter); got != nil {
			t.Errorf("%q: found %q before it was there", c.counter, got.counter)
		}
		table.insert(c)
		for _, there := range cells[:i+1] {
			if got := table.find(there.hash, there.counter); got != there {
				t.Errorf("%q: found %v", there.counter, got)
			}
		}
	}
}
