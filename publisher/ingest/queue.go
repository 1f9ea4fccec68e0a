package ingest

import (
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill"
)

// A queue is the increments that wait for the bus, and how fast it takes them. It refuses
// what would wait too long: a bound on memory alone lets in what cannot be answered in
// time, and then all that is done is done for callers who have gone.
type queue struct {
	most time.Duration // that a request may be expected to wait

	mu      sync.Mutex
	waiting int
	// What was taken lately, and the time in which anything waited; time with nothing to
	// do says nothing of the speed.
	taken float64
	busy  time.Duration
	last  time.Time // when busy was added to
}

const (
	// always may wait, so that there is always something to learn the speed from.
	always = 5_000
	// lookBack is how much busy time is looked back on, at most, and half of it at least.
	lookBack = 4 * time.Second
	// enough busy time to know a speed. The first batches are small and meet cold caches: what
	// they say of a queue that is much longer is not to be relied upon.
	enough = lookBack / 2
)

// full returns the refusal of n more increments, if they would wait too long.
func (q *queue) full(n int, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fullLocked(n, now)
}

func (q *queue) fullLocked(n int, now time.Time) error {
	q.passLocked(now)
	if q.waiting+n <= always || q.waiting == 0 || q.busy < enough || q.taken == 0 {
		return nil
	}
	wait := time.Duration(float64(q.waiting+n) / q.taken * float64(q.busy))
	if wait <= q.most {
		return nil
	}
	return fmt.Errorf("%w: %d increments wait, for longer than %s", countmill.ErrOverloaded, q.waiting, q.most)
}

// enter lets n increments wait, or refuses them.
func (q *queue) enter(n int, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.fullLocked(n, now); err != nil {
		return err
	}
	q.waiting += n
	return nil
}

// leave ends the wait of n increments, which the bus may have taken.
func (q *queue) leave(n int, taken bool, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.passLocked(now)
	if q.waiting -= n; taken {
		q.taken += float64(n)
	}
}

func (q *queue) passLocked(now time.Time) {
	if q.waiting > 0 {
		q.busy += now.Sub(q.last)
	}
	for q.last = now; q.busy > lookBack; q.busy /= 2 {
		q.taken /= 2
	}
}
