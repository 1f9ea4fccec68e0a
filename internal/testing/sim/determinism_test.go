package sim

import (
	"strings"
	"testing"
)

// A seed is a schedule: run again, it does the same. Without flags this is a small sample;
// make determinism runs 100 seeds 100 times each, of which 99 have to have one trace.
func TestDeterminism(t *testing.T) {
	seeds, times := 10, 5
	if *countFlag > 0 {
		seeds, times = *countFlag, *timesFlag
	}
	first := firstSeed()
	differ := 0
	for i := range seeds {
		seed := first + uint64(i)
		hashes := make(map[uint64]int)
		for range times {
			hashes[run(t, seed, false).Hash]++
		}
		// Reading along changes nothing.
		hashes[run(t, seed, true).Hash]++
		if len(hashes) > 1 {
			differ++
			t.Logf("seed %d has %d traces in %d runs: %v\n%s", seed, len(hashes), times+1, hashes, difference(t, seed, times))
		}
	}
	t.Logf("seeds %d to %d, %d runs each: %d of %d have one trace", first, first+uint64(seeds)-1, times+1, seeds-differ, seeds)
	if differ > max(1, seeds/100) { // one of a small sample may be the one of a hundred
		t.Errorf("seeds %d to %d: %d of %d have more than one trace", first, first+uint64(seeds)-1, differ, seeds)
	}
}

// difference shows where two runs of a seed part, with what both have before.
func difference(t *testing.T, seed uint64, times int) string {
	t.Helper()
	before := run(t, seed, true)
	for range 10 * times {
		r := run(t, seed, true)
		for i := range min(len(r.Trace), len(before.Trace)) {
			if a, b := before.Trace[i], r.Trace[i]; a != b {
				return strings.Join(before.Trace[max(0, i-5):i], "\n") + "\n- " + a + "\n+ " + b
			}
		}
	}
	return "it did not happen again"
}
