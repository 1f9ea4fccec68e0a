package aggregator

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestWindowsWaitForTheRestOfTheBudget(t *testing.T) {
	t.Parallel()
	opened := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		pace pace
		age  time.Duration // age of the oldest increment when the window was opened
		want time.Duration // after that
	}{
		"a linger":                          {pace{linger: 100 * ms}, 0, 100 * ms},
		"a linger does not look at ages":    {pace{linger: 100 * ms}, time.Hour, 100 * ms},
		"no linger":                         {pace{linger: -1}, 0, 0},
		"a budget, less the margin":         {pace{budget: 3200 * ms}, 0, 3100 * ms},
		"what folding takes":                {pace{budget: 3200 * ms, takes: 500 * ms}, 0, 2600 * ms},
		"what publisher and bus have taken": {pace{budget: 3200 * ms, takes: 500 * ms}, 2000 * ms, 600 * ms},
		"hardly any time left":              {pace{budget: 3200 * ms, takes: 500 * ms}, 2599 * ms, 50 * ms},
		"too late already":                  {pace{budget: 3200 * ms, takes: 500 * ms}, time.Hour, 160 * ms},
		"widened":                           {pace{budget: 3200 * ms, takes: 500 * ms, widened: 5000 * ms}, 2000 * ms, 5600 * ms},
		"widened, and too late":             {pace{budget: 3200 * ms, widened: 5000 * ms}, time.Hour, 5160 * ms},
	} {
		w := window{opened: opened, oldest: opened.Add(-c.age)}
		if got := c.pace.due(&w).Sub(opened); got != c.want {
			t.Errorf("%s: the window waits for %s, want %s", name, got, c.want)
		}
	}
}

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
