package aggregator

import (
	"sync"
	"time"
)

// An age is the age of the process in whole seconds, as aging measures it.
type age uint32

// aging measures the age of the process. At each call it adds the larger of two differences: of
// the store's time, and of the monotonic clock. The store's clock may be set back, and the
// monotonic clock does not run while a machine is suspended. So age grows at least as fast as the
// store's clock. A clock that jumps ahead and back can only make remembered things old too soon.
type aging struct {
	now func() time.Time // the store's time

	mu      sync.Mutex
	stored  time.Time
	at      time.Time
	elapsed time.Duration
}

// mostAging bounds the growth of the age between two calls. It is enough to make everything
// remembered too old, and it keeps a clock that jumps by centuries from overflowing the count.
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
