package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay the schedule of this seed")
	countFlag = flag.Int("schedules", 0, "run this many")
)

// One processor: what a goroutine starts does not run beside it.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

func run(t *testing.T, seed uint64, verbose bool) (r *Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = Run(seed, verbose) })
	return r
}

func TestReplay(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("no -seed")
	}
	r := run(t, *seedFlag, true)
	for _, line := range r.Trace {
		fmt.Println(line)
	}
	for _, v := range r.Violations {
		t.Error(v)
	}
}

func TestFreshSeeds(t *testing.T) {
	start := *seedFlag
	if start == 0 {
		start = rand.Uint64N(1 << 40)
	}
	began := time.Now()
	deadline := began.Add(5 * time.Second)
	n, calls, steps := 0, 0, 0
	kinds := map[string]int{}
	var faults [faultCount]int
	var rows [rowCount]int
	for seed := start; *countFlag == 0 && time.Now().Before(deadline) || n < *countFlag; seed++ {
		r := run(t, seed, false)
		n++
		calls += r.Calls
		steps += r.Steps
		for i := range faults {
			faults[i] += r.Faults[i]
		}
		for i := range rows {
			rows[i] += r.Rows[i]
		}
		if len(r.Violations) > 0 {
			k := r.Violations[0]
			k = strings.Join(strings.FieldsFunc(k, func(r rune) bool { return r >= '0' && r <= '9' }), "#")
			k = k[:min(len(k), 90)]
			kinds[k]++
			if kinds[k] <= 2 {
				t.Errorf("seed %d: %s (embedded %t)", seed, r.Violations[0], r.Embedded)
			}
		}
	}
	for k, c := range kinds {
		fmt.Println(c, k)
	}
	for i, c := range faults {
		fmt.Print(Fault(i), " ", c, "; ")
	}
	fmt.Println()
	for i, c := range rows {
		fmt.Print(Row(i), " ", c, "; ")
	}
	fmt.Println()
	fmt.Println(start, n, "schedules", calls/n, "calls", steps/n, "steps", time.Since(began)/time.Duration(n))
}

func TestDeterminism(t *testing.T) {
	seeds, times := 100, 15
	for i := range seeds {
		seed := *seedFlag + uint64(i)*7919 + 1
		var first *Result
		for n := range times {
			r := run(t, seed, true)
			if n == 0 {
				first = r
				continue
			}
			if r.Hash != first.Hash || len(r.Trace) != len(first.Trace) || strings.Join(r.Trace, "") != strings.Join(first.Trace, "") {
				for k := range min(len(r.Trace), len(first.Trace)) {
					if r.Trace[k] != first.Trace[k] {
						t.Errorf("seed %d run %d differs at %d:\n%s\n%s", seed, n, k, first.Trace[k], r.Trace[k])
						for _, l := range first.Trace[max(0, k-6) : k+2] {
							t.Log(l)
						}
						break
					}
				}
				break
			}
		}
	}
}
