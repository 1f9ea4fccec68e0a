package aggregator

import "time"

// The range of Config.CountWithin.
const (
	MinCountWithin = 100 * time.Millisecond
	MaxCountWithin = time.Minute
)

// A pace decides how long windows wait.
//
// Without a budget a window waits for the linger. With a budget (Config.CountWithin) it waits
// until its oldest increment has just enough time left for the commit. So a quiet pipeline
// gathers for as long as the budget allows, and a slow store makes windows shorter.
type pace struct {
	linger time.Duration
	budget time.Duration // 0 if there is none

	// takes is the recent time from the end of a window to the end of its last commit, at most
	// the budget. A slower commit raises it at once; faster ones lower it slowly.
	takes time.Duration
	// widened is how long windows wait beyond the budget, because the store cannot take as many
	// commits as the budget needs.
	widened time.Duration
}

func newPace(c *Config) pace {
	return pace{linger: c.Linger, budget: c.CountWithin, takes: c.CountWithin / 8}
}

// due is the time at which the window closes.
func (p *pace) due(w *window) time.Time {
	if p.budget == 0 {
		return w.opened.Add(max(p.linger, 0))
	}
	due := w.oldest.Add(p.budget - p.takes - p.budget/marginShare)
	// Publishers flush together, so other messages follow the first. If increments are too late
	// already, for instance after an outage, small commits do not help: the next increments would
	// be even later.
	least := p.budget / leastShare
	if w.opened.Sub(w.oldest) > p.budget {
		least = p.budget / lateShare
	}
	if soonest := w.opened.Add(least); due.Before(soonest) {
		due = soonest
	}
	return due.Add(p.widened)
}

const (
	// 1/marginShare of the budget is reserved for delays that are not measured.
	marginShare = 32
	// A window waits for at least 1/leastShare of the budget, or 1/lateShare if it is too late
	// already.
	leastShare, lateShare = 64, 20
	// A faster commit lowers takes by 1/fallShare of the difference.
	fallShare = 8
	// Each commit that succeeds at once lowers widened by 1/narrowShare.
	narrowShare = 32
	// mostWidened bounds widened.
	mostWidened = 30 * time.Second
)

// folded notes that a job was applied at its first try. took is the time since its window closed.
func (p *pace) folded(took time.Duration) {
	took = min(took, p.budget)
	p.takes = max(took, p.takes-(p.takes-took)/fallShare)
	if p.widened -= p.widened / narrowShare; p.widened < p.budget/marginShare {
		p.widened = 0
	}
}

// failed notes the nth try of a job that had an unknown outcome; its window was widened by
// widened. One failure alone may be chance; if windows are widened already, it means that they
// are still too narrow. A second failure of the same job means that commits contend with each
// other, or that the store is too slow. Fewer, larger commits help against both.
func (p *pace) failed(n int, widened time.Duration) {
	if p.budget == 0 || n == 1 && widened == 0 {
		return
	}
	more := widened + widened/4
	if n > 1 {
		more = max(2*widened, p.budget/4)
	}
	p.widened = max(p.widened, min(more, mostWidened))
}
