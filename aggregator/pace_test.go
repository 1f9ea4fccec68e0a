package aggregator

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// The pace follows a slower store at once, and a faster one only after several commits: the time
// that is reserved for a commit must be enough for nearly all.
func TestTheFoldingTimeRisesAtOnceAndFallsSlowly(t *testing.T) {
	t.Parallel()
	p := pace{budget: time.Second}
	for i, c := range []struct{ took, want time.Duration }{
		{80 * ms, 80 * ms}, {400 * ms, 400 * ms}, {0, 350 * ms}, {350 * ms, 350 * ms}, {70 * ms, 315 * ms}, {time.Hour, time.Second},
	} {
		if p.folded(c.took); p.takes != c.want {
			t.Errorf("commit %d, of %s: %s are kept for the next, want %s", i, c.took, p.takes, c.want)
		}
	}
}

func TestWindowsWidenWhileJobsFailAgainAndAgain(t *testing.T) {
	t.Parallel()
	p := pace{budget: time.Second}
	step := func(what string, want time.Duration) {
		t.Helper()
		if p.widened != want {
			t.Errorf("%s: widened by %s, want %s", what, p.widened, want)
		}
	}
	p.failed(1, 0)
	step("one failure may be chance", 0)
	p.failed(2, 0)
	step("the second of a job", 250*ms)
	p.failed(3, 0)
	step("the third, of a window that was not widened yet", 250*ms)
	p.failed(2, 250*ms)
	step("of one that was", 500*ms)
	p.folded(0)
	step("a commit that works", 500*ms-500*ms/32)
	for range 20 {
		p.failed(2, p.widened)
	}
	step("an unavailable store", 30*time.Second)
	for n := 0; p.widened > 0; n++ {
		if p.folded(0); n > 300 {
			t.Fatalf("still widened by %s after %d commits that worked", p.widened, n)
		}
	}
	if p = (pace{linger: 100 * ms}); p.widened != 0 {
		t.Error("widened")
	}
	p.failed(5, 0)
	step("without a budget the linger stays", 0)
}
