package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// probeName is asked of the cache to see whether it answers. Nothing is ever kept
// under it: __x__ cannot name a counter.
const probeName = "__countmill_probe__"

// Ready reports whether totals can be served. err says that the store cannot be read
// or is not the database that was opened; degraded says that totals are served and
// what is missing: the cache.
func (r *Reader) Ready(ctx context.Context) (degraded string, err error) {
	if err := r.askStore(ctx); err != nil {
		return "", err
	}
	if r.cache == nil {
		return "", nil
	}
	call, cancel := context.WithTimeout(ctx, r.cfg.CacheTimeout)
	defer cancel()
	if _, err := r.cache.cache.Get(call, []string{probeName}); err != nil {
		return fmt.Sprintf("cache is away: %v", err), nil
	}
	return "", nil
}

// askStore asks the store whether it is still the database that was opened.
func (r *Reader) askStore(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	began := r.clock.Moment()
	checked, err := r.store.Check(call)
	if ctx.Err() == nil {
		r.checked.note(time.Now(), err)
	}
	if err != nil {
		return r.storeError(ctx, "checking the store", err)
	}
	r.clock.Learn(checked.At, began)
	r.workers.clock.Learn(checked.At, began)
	return nil
}

// A checker remembers the answer of the last check. Its zero value asks at once.
type checker struct {
	mu      sync.Mutex
	good    time.Time // when the store was last found to be the right one
	bad     error     // of the last check; nil where it was good
	pending bool      // somebody is asking
	// other: since the last good check one said ErrOtherDatabase. Totals in the cache are not
	// served then.
	other atomic.Bool
}

// checkStore makes sure that no total comes out of another database: one that was
// wiped or swapped has totals too, and they are wrong. It asks every CheckEvery; reads
// go on while the next answer is awaited, but not once an answer was bad.
func (r *Reader) checkStore(ctx context.Context) error {
	ask, err := r.checked.due(time.Now(), r.cfg.CheckEvery)
	if !ask {
		return err
	}
	defer r.checked.asked()
	return r.askStore(ctx)
}

// due reports whether the caller is to ask, and must then call asked. Otherwise err
// says whether it may read.
func (c *checker) due(now time.Time, every time.Duration) (ask bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.bad == nil && !c.good.IsZero() && (c.pending || now.Sub(c.good) < every):
		return false, nil
	case c.bad != nil && c.pending:
		return false, fmt.Errorf("%w: checking the store: %w", countmill.ErrUnavailable, c.bad)
	}
	// Before the first answer everybody asks for itself.
	c.pending = true
	return true, nil
}

func (c *checker) asked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = false
}

func (c *checker) note(now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad = err; err == nil {
		c.good = now
	}
	c.other.Store(err != nil && c.other.Load() || errors.Is(err, store.ErrOtherDatabase))
}
