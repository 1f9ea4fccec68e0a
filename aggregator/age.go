package aggregator

import (
	"sync"
	"time"
)

// An age is a moment of a process: how many seconds old it was then, by its aging.
type age uint32

// aging tells how old a process is. Of the store's time and of the time that passes whatever
// the clocks are set to, it takes the one that has gone further since it was last asked: the
// one may be set back, and the other stands still while a machine is suspended. So it goes at
// least as fast as the store's clock, and a clock that jumps ahead and back can only make what
// is remembered old too soon.
type aging struct {
	now func() time.Time // the store's time

	mu      sync.Mutex
	stored  time.Time
	at      time.Time
	elapsed time.Duration
}

// mostAging is how much older a process becomes from one look to the next, at most. It makes all
// that is remembered old, and a clock that jumps by centuries does not turn the count round.
const mostAging = 30 * 24 * time.Hour

func newAging(now func() time.Time) *aging { return &aging{now: now, stored: now(), at: time.Now()} }

func (a *aging) age() age {
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, at := a.now(), time.Now()
	a.elapsed += min(max(stored.Sub(a.stored), at.Sub(a.at), 0), mostAging)
	a.stored, a.at = stored, at
	return age(a.elapsed / time.Second)
}
