package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// mostRuns bounds the schedules that look for a story.
const mostRuns = 1_500

// story is the smallest schedule of a seed that breaks the same promise, in words.
func story(t *testing.T, seed uint64) string {
	t.Helper()
	runs := func(v variant, verbose bool) (r *Result) {
		synctest.Test(t, func(*testing.T) { r = runVariant(&v, seed, verbose) })
		return r
	}
	first := runs(variant{}, false)
	if len(first.Violations) == 0 {
		return fmt.Sprintf("seed %d breaks no promise", seed)
	}
	all := newKernel(seed, false, nil).plan.cuts()
	v := shrink(all, mostRuns, func(v variant) int {
		if r := runs(v, false); len(r.Violations) > 0 && kindOf(r.Violations[0]) == kindOf(first.Violations[0]) {
			return r.Calls
		}
		return -1
	})
	return fmt.Sprintf("The smallest schedule like seed %d, by other draws (%d). Of the plan it has left: %s\n%s", seed, v.salt, v.needs(all), legible(runs(v, true).Trace))
}

// TestStory prints the story of -seed.
func TestStory(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("no -seed")
	}
	fmt.Println(story(t, *seedFlag))
}

// A failure needs two cuts not to be made: these two are left.
func TestShrink(t *testing.T) {
	t.Parallel()
	all := make([]cut, 40)
	for i := range all {
		all[i].name = fmt.Sprint(i)
	}
	v := shrink(all, mostRuns, func(v variant) int {
		for _, c := range v.cuts {
			if c.name == "7" || c.name == "31" {
				return -1
			}
		}
		if v.salt%3 != 0 { // other draws do not come to it
			return -1
		}
		return max(0, 300-int(v.salt))
	})
	if len(v.cuts) != 38 || v.salt < 300 {
		t.Errorf("%d cuts, and the draws %d", len(v.cuts), v.salt)
	}
}
