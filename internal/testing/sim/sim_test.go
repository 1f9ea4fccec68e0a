package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the first schedule's seed; drawn where it is 0")
	countFlag = flag.Int("schedules", 0, "how many schedules")
	huntFlag  = flag.Bool("hunt", false, "TestFreshSeeds ends with the first violation, which is no failure")
	timesFlag = flag.Int("times", 1, "how often TestDeterminism runs each")
)

// One processor per process: a new goroutine does not run beside its parent. A schedule needs little memory, so it seldom collects any. The limit
// is needed: a collection keeps each store once more, for its sync.Pool, and so the schedules since the collection before. At 400 % that grows.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 0
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(400 << 20)
	os.Exit(m.Run())
}

func run(t *testing.T, seed uint64, verbose bool) (r *Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = Run(seed, verbose) })
	return r
}

// replay is the command that shows a schedule again.
func replay(seed uint64) string {
	return fmt.Sprintf("make replay SEED=%d", seed)
}

func firstSeed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return 1 + rand.Uint64N(1<<40)
}

// TestReplay prints what happens in the schedule of -seed.
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

// TestFreshSeeds runs schedules that nobody has seen before: -schedules of them, or for a
// few seconds.
func TestFreshSeeds(t *testing.T) {
	first, began := firstSeed(), time.Now()
	limit := 3 * time.Second
	if testing.Short() {
		limit = time.Second
	}
	fmt.Printf("fresh seeds from %d on\n", first) // first: a panic would keep it back
	var tally Tally
	more := func() bool {
		if *countFlag > 0 {
			return tally.Schedules < *countFlag
		}
		return time.Since(began) < limit
	}
	for more() {
		tally.Add(run(t, first+uint64(tally.Schedules), false))
		if *huntFlag && tally.Wrong > 0 {
			found := tally.Failures[0]
			fmt.Printf("found in schedule %d, seed %d: %s\n", tally.Schedules, found.Seed, found.Violation)
			if os.Getenv(showStory) != "" {
				fmt.Println(story(t, found.Seed))
			}
			return
		}
	}
	report(t, &tally, first)
	t.Logf("%d schedules, %d calls of bus and store, %s", tally.Schedules, tally.Calls, time.Since(began).Round(time.Millisecond))
}

// report fails for every schedule that went wrong, with what replays it.
func report(t *testing.T, tally *Tally, first uint64) {
	t.Helper()
	if tally.Schedules == 0 {
		return
	}
	last := first + uint64(tally.Schedules) - 1
	for _, f := range tally.Failures {
		t.Errorf("seed %d: %s\n%s", f.Seed, f.Violation, replay(f.Seed))
	}
	if len(tally.Failures) > 0 {
		t.Log(story(t, tally.Failures[0].Seed))
	}
	if tally.Wrong > 0 || tally.Few > 0 {
		t.Errorf("seeds %d to %d: %d of %d schedules went wrong, %d had fewer than %d calls",
			first, last, tally.Wrong, tally.Schedules, tally.Few, leastCalls)
		return
	}
	t.Logf("seeds %d to %d: no violation", first, last)
}
