package sim

import (
	"slices"
	"strings"
	"testing"
)

// A seed is a schedule: run again, it does the same. But Go draws which ready case a select takes, in which order timers of one moment fire,
// and the seed of each hash of names: 5 of 800 seeds had a second trace in five runs each.
func TestDeterminism(t *testing.T) {
	seeds, times := 10, 5
	if *countFlag > 0 {
		seeds, times = *countFlag, *timesFlag
	}
	first := firstSeed()
	differ := 0
	for i := range seeds {
		seed := first + uint64(i)
		one := run(t, seed, true)
		for n := range times + 1 {
			unread := n == 0 // reading along changes nothing
			r := run(t, seed, !unread)
			if r.Counts != one.Counts || !unread && !slices.Equal(r.Trace, one.Trace) {
				differ++
				t.Logf("seed %d has several traces:\n%+v\n%+v\n%s", seed, one.Counts, r.Counts, difference(one.Trace, r.Trace))
				break
			}
		}
	}
	t.Logf("seeds %d to %d, %d runs each: %d of %d have one trace", first, first+uint64(seeds)-1, times+2, seeds-differ, seeds)
	if differ > 2+seeds/20 {
		t.Errorf("seeds %d to %d: %d of %d have more than one trace", first, first+uint64(seeds)-1, differ, seeds)
	}
}

// difference shows where two traces part, with what both have before.
func difference(one, other []string) string {
	if other == nil {
		return "nobody read the second"
	}
	i := 0
	for i < min(len(one), len(other)) && one[i] == other[i] {
		i++
	}
	line := func(trace []string) string { return strings.Join(trace[i:min(i+1, len(trace))], "") }
	return strings.Join(one[max(0, i-5):i], "\n") + "\n- " + line(one) + "\n+ " + line(other)
}
