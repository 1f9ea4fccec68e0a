package pebble

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

const day = 24 * time.Hour

// A testClock is a machine's clock and a process's age. A test sets each of them.
type testClock struct {
	mu   sync.Mutex
	wall time.Time
	age  time.Duration
}

// clockStart is the beginning of an epoch.
var clockStart = time.UnixMicro(6000 * epochLength).UTC()

func newTestClock() *testClock { return &testClock{wall: clockStart} }

func (c *testClock) config(cfg Config) Config {
	cfg.clock = func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.wall
	}
	cfg.age = func() time.Duration {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.age
	}
	return cfg
}

// set sets the machine's clock.
func (c *testClock) set(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

// pass lets d pass. A process that runs for a hundredth of d calls Check every 10 seconds. That is long
// enough for ForgetBefore to keep up.
func (c *testClock) pass(t testing.TB, s *Store, d time.Duration) store.Settings {
	t.Helper()
	const step = store.ForgetPace * store.CheckEvery
	for ; d > 0; d -= step {
		c.mu.Lock()
		c.wall, c.age = c.wall.Add(min(d, step)), c.age+store.CheckEvery
		c.mu.Unlock()
		checked(t, s)
	}
	return checked(t, s)
}

func checked(t testing.TB, s *Store) store.Settings {
	t.Helper()
	checked, err := s.Check(t.Context())
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	return checked.Settings
}

func sweep(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatalf("Sweep: %v", err)
	}
}

func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return open(t, s.directory.cfg)
}

// A process begins with the ForgetBefore of the last process, however that one ended.
func TestForgetBeforeIsKept(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	s := open(t, c.config(Config{Dir: t.TempDir(), Window: day}))
	closed := c.pass(t, s, 12*time.Hour)
	c.set(clockStart) // so that it can only come from the disk
	s = reopen(t, s)
	if got := checked(t, s); !cmp.Equal(got, closed) {
		t.Errorf("opened again: settings %+v, want %+v", got, closed)
	}
	c.set(clockStart.Add(12 * time.Hour))
	swept := c.pass(t, s, 6*time.Hour)
	sweep(t, s)
	c.pass(t, s, 6*time.Hour)
	copied := copyOf(t, s)
	c.set(clockStart)
	swept.Restores++ // a copy counts as a restore
	if got := checked(t, open(t, c.config(Config{Dir: copied, Window: 9 * day}))); !cmp.Equal(got, swept) {
		t.Errorf("a backup has settings %+v, want those of the last sweep, %+v", got, swept)
	}
}

func TestWindowOfAConfig(t *testing.T) {
	t.Parallel()
	if got := checked(t, open(t, Config{Dir: t.TempDir()})).Window; got != countmill.DefaultDedupWindow {
		t.Errorf("by default the window is %s, want %s", got, countmill.DefaultDedupWindow)
	}
	if _, err := Open(Config{Dir: t.TempDir(), Window: -1}); err == nil || !strings.Contains(err.Error(), "Window must not be negative") {
		t.Errorf("a negative window: got error %v", err)
	}
}

// Each start has an identity of its own, even in the same directory.
func TestCacheIdentity(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	prefix, key := s.CacheIdentity()
	if again, _ := s.CacheIdentity(); again != prefix || !strings.HasPrefix(prefix, "cm:") {
		t.Errorf("prefixes %q and %q of one store", prefix, again)
	}
	s = reopen(t, s)
	if again, other := s.CacheIdentity(); again == prefix || other == key {
		t.Errorf("opened again it has prefix %q, as before, or the key of before", again)
	}
}
