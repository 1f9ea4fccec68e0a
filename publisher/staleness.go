package publisher

import "time"

// What Config.CountWithin may be.
const (
	MinCountWithin = 100 * time.Millisecond
	MaxCountWithin = time.Minute
)

// lingerWithin is how much of a budget of staleness a batch may wait. The rest is for the way
// over the bus and for the commit, of which a publisher never hears: a fifth of a second,
// and of what comes on top a twentieth, as neither takes longer because more may wait.
func lingerWithin(budget time.Duration) time.Duration {
	return budget - budget/20 - min(budget, time.Second)*3/20
}

// sealAtLocked is when a batch whose oldest increment came at that time is to be sealed.
//
// Publishers that seal together pay for one window between them, and each of them waits for
// nearly the whole budget. If each did so at a time of its own, a window would hold the
// messages of those few who did so lately, and one that waited for more of them would have to
// take that time from the publishers.
func (p *Publisher) sealAtLocked(oldest time.Time) time.Time {
	if p.together {
		return oldest.Truncate(p.cfg.Linger).Add(p.cfg.Linger)
	}
	return oldest.Add(p.lingerLocked())
}
