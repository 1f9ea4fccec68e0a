package publisher

import (
	"testing"

	"github.com/countmill/countmill/wire"
)

// The parts of a flush say together how many increments they are the sums of.
func TestFlushSaysItsIncrements(t *testing.T) {
	t.Parallel()
	entries := func(n int) []wire.Entry { return make([]wire.Entry, n) }
	for _, tc := range []struct {
		increments int64
		parts      []wire.Part
		want       int64
	}{
		{30, []wire.Part{{Entries: entries(24)}, {Entries: entries(6)}}, 30},
		{1000, []wire.Part{{Entries: entries(24)}, {Entries: entries(6)}}, 1000},
		{5, []wire.Part{{Kind: wire.Head}, {Entries: entries(3)}}, 5},
		{1 << 50, []wire.Part{{Entries: entries(1)}}, wire.MaxIncrements},
		{2, nil, 0}, // they cancelled out
	} {
		(&flush{increments: tc.increments}).countIn(tc.parts)
		got := int64(0)
		for i := range tc.parts {
			got += tc.parts[i].CountIncrements()
		}
		if got != tc.want {
			t.Errorf("%d increments in %d parts: the parts say %d, want %d", tc.increments, len(tc.parts), got, tc.want)
		}
	}
}
