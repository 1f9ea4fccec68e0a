package pebble

import (
	"sync"
	"time"
)

// moments gives out the times of views and resets. Each moment is after the one before, even if the
// machine's clock is set back. This holds across restarts, because the commit count's file keeps the
// last moment. After a kill that may be one of some seconds before; the moments of journal records go on after the last record.
//
//	moment = max(last + 1 us, the clock, last + 15/16 of the time since last)
//
// So moments advance while the clock is behind them, and cached totals age nearly as fast as time
// passes. They advance a sixteenth slower than time until the clock has caught up. If the clock was set
// back by an hour, that takes 16 hours. A clock that showed 2040 once leaves the moments there.
type moments struct {
	clock func() time.Time // the machine's clock

	mu   sync.Mutex
	last time.Time
	at   time.Time // when last was given out, on a clock that cannot be set
}

// slower: while moments are ahead of the clock they lose 1/slower of the time that passes.
const slower = 16

// next returns a moment, in whole microseconds. The caller must read the store after the call, so that
// its answer contains everything that was committed before the moment.
func (m *moments) next() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The clock first: if the process is paused between the two, the next moment does not come before
	// its time.
	now, at := m.clock(), time.Now()
	passed := at.Sub(m.at)
	next := later(now, m.last.Add(passed-passed/slower))
	m.last, m.at = later(next.UTC().Truncate(time.Microsecond), m.last.Add(time.Microsecond)), at
	return m.last
}

// resume continues after another process's last moment, unless these moments are later. A zero last means that there was none.
func (m *moments) resume(last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.at = later(m.last, last), time.Now()
}

// newest returns the last moment that was given out.
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
