package publisher

import "time"

// The range of Config.CountWithin.
const (
	MinCountWithin = 100 * time.Millisecond
	MaxCountWithin = time.Minute
)

// lingerWithin is the part of CountWithin for which a batch may wait. The rest is for bus and
// commit, about which a publisher learns nothing: a fifth of the first second, and a twentieth of
// the time beyond it, because bus and commit take no longer if more time is allowed.
func lingerWithin(budget time.Duration) time.Duration {
	return budget - budget/20 - min(budget, time.Second)*3/20
}

// flushAtLocked is the time at which a batch with the oldest increment of that time is flushed.
//
// Publishers that flush together share one window of an aggregator, and each of them waits for
// nearly the whole budget. If each flushed at a time of its own, a window would have the messages
// of few publishers. A window that waits for more of them would have to take that time from the
// publishers.
func (p *Publisher) flushAtLocked(oldest time.Time) time.Time {
	if p.together {
		return oldest.Truncate(p.cfg.Linger).Add(p.cfg.Linger)
	}
	return oldest.Add(p.lingerLocked())
}
