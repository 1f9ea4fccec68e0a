package fair

import (
	"fmt"
	"testing"
)

// However many greedy callers there are, a caller that has nothing gets something, until the last one is taken.
func TestPool(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ most, keen, first, second, callers int }{
		{4, 3, 3, 1, 2}, {8, 3, 6, 1, 3}, {1000, 8, 888, 99, 5}, {1, 8, 1, 0, 1}, {100, 1, 50, 25, 8},
	} {
		p := NewPool(tc.most, tc.keen)
		var got []int
		for n := 0; ; n++ {
			all := 0
			for p.Take(fmt.Sprint(n), 1) {
				all++
			}
			if all == 0 {
				break
			}
			got = append(got, all)
		}
		if got = append(got, 0); got[0] != tc.first || got[1] != tc.second || len(got)-1 != tc.callers || p.Own() != tc.first {
			t.Errorf("of %d with keen %d greedy callers got %v, and the first was told %d", tc.most, tc.keen, got, p.Own())
		}
		if !p.Take("0", 0) || !p.Fits("0", 0) || p.Fits("0", 1) {
			t.Error("a caller with its share gets more, or cannot take nothing")
		}
		for n, all := range got {
			p.Give(fmt.Sprint(n), all)
		}
		if p.Used() != 0 || len(p.usage.by) != 0 {
			t.Errorf("%d are left, of %v", p.Used(), p.usage.by)
		}
	}
}
