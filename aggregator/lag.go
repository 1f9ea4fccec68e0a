package aggregator

import "time"

// A wait is since when something is held. Its zero value holds nothing.
type wait struct {
	// born is the batch's time, or the broker's where it is earlier. The clock that it was
	// stamped by may be ahead, or behind.
	born time.Time
	// taken and at are when it was taken. The one is by the store's time, which may be set back;
	// the other by a clock that nobody sets, and that stops while a machine is suspended.
	taken, at time.Time
}

func (w wait) none() bool { return w.at.IsZero() }

// over is the wait of two things together.
func (w wait) over(o wait) wait {
	if w.none() {
		return o
	}
	return wait{earlier(w.born, o.born), earlier(w.taken, o.taken), earlier(w.at, o.at)}
}

// age is never less than how long it is held, whatever clocks are set to. now is the store's
// time. Sub stops at 292 years, where nanoseconds since 1970 would go round.
func (w wait) age(now time.Time) time.Duration {
	if w.none() {
		return 0
	}
	return max(now.Sub(w.born), now.Sub(w.taken), time.Since(w.at), 0)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// hold keeps a message or a letter until all of it is settled. Lag covers it at once: the next
// worker's record may be written before the next audit.
func (l *loop) hold(h *held) {
	h.taken, h.at = l.a.clock.Now(), time.Now()
	l.holding[h] = struct{}{}
	l.heldMemory += h.memory
	if h.letter == "" {
		l.cover(h.wait)
	}
}

// cover has lag cover a message at once.
func (l *loop) cover(w wait) {
	before := *l.a.stats.waits.Load()
	if after := before.over(w); after != before {
		l.a.stats.waits.Store(&after)
	}
}

// measure works out how much is held, and since when, for callers in other goroutines.
func (l *loop) measure() {
	messages, letters := new(wait), new(wait)
	for h := range l.holding {
		if h.letter == "" {
			*messages = messages.over(h.wait)
		} else {
			*letters = letters.over(h.wait)
		}
	}
	for _, p := range l.newer.waiting {
		*messages = messages.over(p.wait)
	}
	s := &l.a.stats
	s.waits.Store(messages)
	s.replays.Store(letters)
	s.heldMessages.Store(int64(len(l.holding)))
	s.heldMemory.Store(int64(l.heldMemory))
	s.replaying.Store(int64(l.replay.open))
}
