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

// probeName is the name with which Ready asks the cache whether it answers. The cache never has
// it, because no counter can be named __x__.
const probeName = "__countmill_probe__"

// readyFor is how long an answer of Ready holds: anybody may ask, and a look at the store may cost money.
const readyFor = time.Second

// A readiness is an answer of Ready.
type readiness struct {
	began    time.Time
	degraded string
	err      error
}

// Ready reports whether totals can be served. err is not nil if the store cannot be read, or if
// it is not the database that was opened. degraded is not empty if totals are served without the
// cache. Calls within a second share one answer.
func (r *Reader) Ready(ctx context.Context) (degraded string, err error) {
	if last := r.ready.Load(); last != nil && time.Since(last.began) < readyFor {
		return last.degraded, last.err
	}
	answer, _, gone := r.readying.do(ctx, "", time.Time{}, func(ctx context.Context) (readiness, error) {
		a := readiness{began: time.Now()}
		a.degraded, a.err = r.askBoth(ctx)
		if ctx.Err() == nil {
			r.ready.Store(&a)
		}
		return a, nil
	})
	if gone != nil {
		return "", r.storeError(ctx, "checking the store", gone)
	}
	return answer.degraded, answer.err
}

// askBoth asks the store and the cache.
func (r *Reader) askBoth(ctx context.Context) (degraded string, err error) {
	if err := r.askStore(ctx); err != nil {
		return "", err
	}
	if r.cache == nil {
		return "", nil
	}
	call, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	if _, err := r.cache.cache.Get(call, []string{probeName}); err != nil {
		return fmt.Sprintf("cache is unavailable: %v", err), nil
	}
	return "", nil
}

// askStore asks the store whether it is still the database that was opened. Callers share a call that began after they came.
func (r *Reader) askStore(ctx context.Context) error {
	came := time.Now()
	began, _, err := r.asking.do(ctx, "", time.Time{}, r.ask)
	if err == nil && began.Before(came) {
		_, _, err = r.asking.do(ctx, "", came, r.ask)
	}
	if err != nil {
		return r.storeError(ctx, "checking the store", err)
	}
	return nil
}

// ask is one call of askStore, and returns when it began.
func (r *Reader) ask(ctx context.Context) (machine time.Time, err error) {
	call, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	machine = time.Now()
	began := r.clock.Moment()
	checked, err := r.store.Check(call)
	if errors.Is(err, store.ErrReadOnly) { // a disk that is full has all totals
		err = nil
	}
	if err == nil { // before the note: readers that see it may use the settings
		at := checked.At
		if at.IsZero() { // the store's clock is the machine's
			at = r.cfg.env.At(machine)
		}
		r.keep(&checked.Settings, at, machine)
	}
	if ctx.Err() == nil {
		r.checked.note(time.Now(), checked.Settings.ForgetBefore, err, call.Err() != nil)
	}
	if err == nil {
		r.clock.Learn(checked.At, began)
		r.workers.clock.Learn(checked.At, began)
	}
	return machine, err
}

// keep keeps settings together with a moment at which the store had them. began is when the call for them
// began, by the monotonic clock: the answer of an earlier call may come later, and older settings must not
// replace newer ones.
func (r *Reader) keep(s *store.Settings, at, began time.Time) {
	r.keeping.Lock()
	defer r.keeping.Unlock()
	if began.Before(r.begun) {
		return
	}
	r.begun = began
	r.settings.Store(s)
	r.asked.Store(&at)
}

// ReadSettings reads the settings of the database now, so that the groups of a deleted index are not served any
// more. It returns after twice Config.Timeout at most, whether it has or not: without it the reader learns of
// a change within Config.CheckEvery.
func (r *Reader) ReadSettings(ctx context.Context) { _ = r.askStore(ctx) }

// A checker remembers the answer of the last check. Its zero value asks at once.
type checker struct {
	mu      sync.Mutex
	good    time.Time // time of the last good check
	expired time.Time // Settings.ForgetBefore at the last good check
	bad     error     // error of the last check; nil if it was good
	pending bool      // a caller is asking
	// other is true if a check since the last good one answered ErrOtherDatabase. Cached totals
	// are then not served.
	other atomic.Bool
	// last is when a check was answered last, or begun by a caller of old. Nil before the first.
	last atomic.Pointer[time.Time]
}

// checkStore makes sure that no total comes from another database: a database that was wiped or
// replaced has totals too, and they are wrong. It asks every CheckEvery. Reads go on while a
// check is under way, unless the last one failed.
func (r *Reader) checkStore(ctx context.Context) error {
	ask, err := r.checked.due(time.Now(), r.cfg.CheckEvery)
	if !ask {
		return err
	}
	defer r.checked.asked()
	if _, err := r.ask(ctx); err != nil { // not shared: others may read from the moment at which the call begins
		return r.storeError(ctx, "checking the store", err)
	}
	return nil
}

// due reports whether the caller must ask, and then call asked. Otherwise err is nil if the
// caller may read.
func (c *checker) due(now time.Time, every time.Duration) (ask bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.bad == nil && !c.good.IsZero() && (c.pending || now.Sub(c.good) < every):
		return false, nil
	case c.bad != nil && c.pending:
		return false, fmt.Errorf("%w: checking the store: %w", countmill.ErrUnavailable, c.bad)
	}
	// Before the first answer every caller asks.
	c.pending = true
	return true, nil
}

// old reports whether the caller must check the store before it serves cached totals. It says so to one caller in every, also
// while the store does not answer: all others need not wait.
func (c *checker) old(every time.Duration) bool {
	last := c.last.Load()
	if last != nil && time.Since(*last) < every {
		return false
	}
	now := time.Now()
	return c.last.CompareAndSwap(last, &now)
}

func (c *checker) asked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = false
}

// note takes in the answer of a check. forgetBefore is zero if err is not nil. A time-out (late) counts only if checkStore waits for
// it: others may ask so often that one of their calls must not refuse all reads.
func (c *checker) note(now, forgetBefore time.Time, err error, late bool) {
	c.last.Store(&now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && late && !c.pending {
		return
	}
	if c.bad = err; err == nil {
		c.good, c.expired = now, forgetBefore
	}
	c.other.Store(err != nil && c.other.Load() || errors.Is(err, store.ErrOtherDatabase))
}

func (c *checker) forgetBefore() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired
}
