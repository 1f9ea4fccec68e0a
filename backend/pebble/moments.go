package pebble

import (
	"sync"
	"time"
)

// moments tells the times that views and resets are stamped with. Each is after the one before,
// also where the machine's clock was set back, and over a restart: the last one is kept with the
// commit count.
//
//	moment = max(last + 1 us, the clock, last + 15/16 of what passed since)
//
// So moments go on while the clock is behind them: totals in caches age nearly as fast as time
// passes. They go a sixteenth too slow, until the clock has caught up: of a clock that was set back
// by an hour nothing is left after 16. A clock that showed 2040 for a moment leaves them there.
type moments struct {
	clock func() time.Time // the machine's

	mu   sync.Mutex
	last time.Time
	at   time.Time // when last was given out, by a clock that nobody sets
}

// slower is the part of the time that moments lose while they are ahead of the clock.
const slower = 16

// next returns a moment in microseconds. The caller looks at the store after it, so that what was
// committed by then is there.
func (m *moments) next() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := time.Now()
	passed := at.Sub(m.at)
	next := later(m.clock(), m.last.Add(passed-passed/slower))
	m.last, m.at = later(next.UTC().Truncate(time.Microsecond), m.last.Add(time.Microsecond)), at
	return m.last
}

// resume goes on after the last moment of another process, or of none.
func (m *moments) resume(last time.Time) (ahead time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.at = last, time.Now()
	return last.Sub(m.clock())
}

// newest is the last one that was given out.
func (m *moments) newest() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
