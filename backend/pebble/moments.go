package pebble

import (
	"sync"
	"time"
)

// moments gives out the times that stamp views and resets. Each is after the one before, also where
// the machine's clock was set back, and over a restart: the seal keeps the last one.
//
//	moment = max(last + 1 us, the clock, last + 15/16 of the time since)
//
// So moments go on while the clock is behind them, and totals in caches age nearly as fast as time
// passes. They lose a sixteenth until the clock has caught up: 16 hours after it was set back by one
// hour. A clock that showed 2040 for a moment leaves them there.
type moments struct {
	clock func() time.Time // the machine's

	mu   sync.Mutex
	last time.Time
	at   time.Time // when last was given out, by a clock that nobody sets
}

// slower is the part of the time that moments lose while they are ahead of the clock.
const slower = 16

// next returns a moment in microseconds. The caller looks at the store after it, and so finds all
// commits that were made by then.
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

// newest is the last moment.
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
