package aggregator

import "time"

// What Config.CountWithin may be.
const (
	MinCountWithin = 100 * time.Millisecond
	MaxCountWithin = time.Minute
)

// A pace says how long windows wait.
//
// Without a budget that is the linger. With one, a window waits until its oldest increment
// has just the time left that folding takes: a quiet pipeline gathers for as long as the
// budget lets it, a slow store makes windows shorter by itself.
type pace struct {
	linger time.Duration
	budget time.Duration // 0 for none

	// takes is how long it lately took from the end of a window until its last commit had
	// ended, the budget at most. It rises with the slowest at once and falls slowly.
	takes time.Duration
	// widened is what windows wait beyond the budget, because the store does not take as
	// many commits as the budget asks for.
	widened time.Duration
}

func newPace(c *Config) pace {
	return pace{linger: c.Linger, budget: c.CountWithin, takes: c.CountWithin / 8}
}

// due is when the window closes.
func (p *pace) due(w *window) time.Time {
	if p.budget == 0 {
		return w.opened.Add(max(p.linger, 0))
	}
	due := w.oldest.Add(p.budget - p.takes - p.budget/marginShare)
	// Publishers seal together: the first message is followed by others. What is too late
	// already, after an outage for instance, is not helped by small commits either: the next
	// ones would be later still.
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
	// marginShare of the budget is kept for what nobody measures.
	marginShare = 32
	// leastShare of the budget is the least that a window waits, lateShare where it is too
	// late.
	leastShare, lateShare = 64, 20
	// fallShare of the difference to a faster commit is forgotten with it.
	fallShare = 8
	// narrowShare of what windows are widened by goes with each commit that works at once.
	narrowShare = 32
	// mostWidened bounds what windows wait beyond the budget.
	mostWidened = 30 * time.Second
)

// folded notes that a job was applied at its first try, so long after its window closed.
func (p *pace) folded(took time.Duration) {
	took = min(took, p.budget)
	p.takes = max(took, p.takes-(p.takes-took)/fallShare)
	if p.widened -= p.widened / narrowShare; p.widened < p.budget/marginShare {
		p.widened = 0
	}
}

// failed notes that a try had an unknown outcome, the nth of a job whose window was widened
// by so much. One alone may be chance; where windows are widened already it says that they
// are still too narrow. A second one of the same job says that too many commits stand in each
// other's way, or that the store is not up to them. Fewer and larger ones help against both.
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
