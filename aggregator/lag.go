package aggregator

import "time"

// A wait is the time since when something is held. The zero value means that nothing is.
type wait struct {
	// born is the batch's time, or the broker's if that is earlier. The clock behind it may be
	// wrong.
	born time.Time
	// taken and at are when the aggregator took it: taken by the store's clock, which may be set
	// back, and at by the monotonic clock, which does not run while a machine is suspended.
	taken, at time.Time
}

func (w wait) none() bool { return w.at.IsZero() }

// over is the longer wait of two things.
func (w wait) over(o wait) wait {
	switch {
	case w.none():
		return o
	case o.none():
		return w
	}
	return wait{earlier(w.born, o.born), earlier(w.taken, o.taken), earlier(w.at, o.at)}
}

// age is never less than the time that the thing was held, even if a clock is wrong. now is the
// store's time. time.Time.Sub saturates at 292 years; nanoseconds since 1970 would wrap.
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

// hold keeps a message or a letter until all of it is settled. Lag includes it at once: the next
// heartbeat may come before the next audit.
func (l *loop) hold(h *held) {
	h.taken, h.at = l.a.clock.Now(), time.Now()
	l.holding[h] = struct{}{}
	l.heldMemory += h.memory
	if h.letter == "" {
		l.cover(h.wait)
	}
}

// cover includes a message in the lag at once.
func (l *loop) cover(w wait) {
	before := *l.a.stats.waits.Load()
	if after := before.over(w); after != before {
		l.a.stats.waits.Store(&after)
	}
}

// measure computes how much is held, and since when, for callers in other goroutines.
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
