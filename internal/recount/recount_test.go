package recount_test

import (
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/recounttest"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// A clock is the store's, and moves when a test says so. It moves a little by itself, as clocks do.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Microsecond)
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// kinds are a store that settles at once, and one that takes minutes.
var kinds = map[string]fakestore.Options{
	"embedded": {GrowsInFold: true, CertainOutcome: true, Entities: 1 << 20, Age: func() time.Duration { return 0 }},
	"apart":    {},
}

func forKinds(t *testing.T, f func(t *testing.T, r *recounttest.Rig)) {
	t.Helper()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{at: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
			opts.Clock, opts.Errorf = c.now, t.Errorf
			f(t, recounttest.New(t, fakestore.New(opts), c.pass, c.now))
		})
	}
}

func TestRepairs(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *recounttest.Rig) { recounttest.Repairs(t, r, false) })
}

func TestRepairsWhereIndexesAreChecked(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *recounttest.Rig) { recounttest.Repairs(t, r, true) })
}
