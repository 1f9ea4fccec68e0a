package pebble

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const day = 24 * time.Hour

// A testClock is a machine's clock and a process's age. A test sets each of them.
type testClock struct {
	mu   sync.Mutex
	wall time.Time
	age  time.Duration
}

// clockStart is the beginning of an epoch.
var clockStart = epoch(6000).end().UTC()

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
		check(t, s)
	}
	return check(t, s)
}

func check(t testing.TB, s *Store) store.Settings {
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
	return open(t, s.cfg)
}

func markersOf(t testing.TB, s *Store, ids ...wire.PartID) map[wire.PartID]store.Marker {
	t.Helper()
	found, err := s.Applied(t.Context(), ids)
	if err != nil {
		t.Fatalf("Applied: %v", err)
	}
	markers := make(map[wire.PartID]store.Marker)
	for _, m := range found {
		markers[m.ID] = m
	}
	return markers
}

func TestSweepDropsEpochsThatAreOver(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	s := open(t, c.config(Config{Dir: t.TempDir(), Window: 2 * day}))
	var ids []wire.PartID
	var times []time.Time
	for i := range 80 {
		m := marker(clockStart.Add(time.Duration(i) * 3 * time.Hour))
		fold(t, s, m, "a", 1)
		ids, times = append(ids, m[0].ID), append(times, m[0].At)
	}
	for range 420 {
		settings := c.pass(t, s, time.Hour)
		sweep(t, s)
		kept := markersOf(t, s, ids...)
		for i, id := range ids {
			_, found := kept[id]
			switch behind := settings.ForgetBefore.Sub(times[i]); {
			case !found && behind <= store.MarkerSlack:
				t.Errorf("the marker of a part %s behind ForgetBefore is gone", behind)
			case found && behind > store.MarkerSlack+epochLength:
				t.Errorf("the marker of a part %s behind ForgetBefore is still there", behind)
			}
		}
	}
	if len(s.epochs) != 0 {
		t.Errorf("epochs %v are left", s.epochs)
	}
	s = reopen(t, s)
	if got := total(t, s, "a"); got != 80 || len(s.epochs) != 0 {
		t.Errorf("reopened: got %d and epochs %v, want 80 and none", got, s.epochs)
	}
}

// When a machine boots, or somebody sets its clock, the clock may be years off for a moment. An id of
// yesterday is still a duplicate, then and later.
func TestAWrongClockForgetsNothing(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Time{
		"a year ahead": clockStart.AddDate(1, 0, 0), "2040": time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC).Add(clockStart.Sub(time.Unix(0, 0))),
		"1970": time.Unix(0, 0),
	} {
		c := newTestClock()
		s := open(t, c.config(Config{Dir: t.TempDir(), Window: day}))
		yesterday := marker(clockStart.Add(-day))
		fold(t, s, yesterday, "a", 1)
		before := check(t, s)
		c.set(wrong)
		for range 2 { // in the open process, and in one that starts with that clock
			fold(t, s, marker(wrong), "a", 1)
			c.pass(t, s, time.Second)
			sweep(t, s)
			s = reopen(t, s)
		}
		c.set(clockStart.Add(time.Minute))
		after := c.pass(t, s, time.Minute)
		sweep(t, s)
		if moved := after.ForgetBefore.Sub(before.ForgetBefore); moved < 0 || moved > time.Hour {
			t.Errorf("%s for a moment: ForgetBefore moved by %s, want at most an hour", name, moved)
		}
		if len(markersOf(t, s, yesterday[0].ID)) != 1 {
			t.Errorf("%s for a moment: the marker of yesterday is gone", name)
		}
		if _, err := s.Fold(t.Context(), &store.Commit{Markers: yesterday}); !errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("%s for a moment: an id of yesterday got %v, want ErrMarkerExists", name, err)
		}
	}
}

// A process begins with the ForgetBefore of the last process, however that one ended.
func TestForgetBeforeIsKept(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	s := open(t, c.config(Config{Dir: t.TempDir(), Window: day}))
	closed := c.pass(t, s, 12*time.Hour)
	c.set(clockStart) // so that it can only come from the disk
	s = reopen(t, s)
	if got := check(t, s); !cmp.Equal(got, closed) {
		t.Errorf("opened again: settings %+v, want %+v", got, closed)
	}
	c.set(clockStart.Add(12 * time.Hour))
	swept := c.pass(t, s, 6*time.Hour)
	sweep(t, s)
	c.pass(t, s, 6*time.Hour)
	copied := copyOf(t, s)
	c.set(clockStart)
	if got := check(t, open(t, c.config(Config{Dir: copied, Window: 9 * day}))); !cmp.Equal(got, swept) {
		t.Errorf("a backup has settings %+v, want those of the last sweep, %+v", got, swept)
	}
}

// While a longer window takes effect, and later, a process reads the same settings as one that starts
// then.
func TestSetWindowIsKept(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	s := open(t, c.config(Config{Dir: t.TempDir(), Window: day}))
	for i, window := range []time.Duration{8 * day, 2 * day, 2 * day, 4 * day} {
		c.pass(t, s, time.Hour)
		set, err := s.SetWindow(t.Context(), window)
		if err != nil {
			t.Fatal(err)
		}
		if now := check(t, s); !cmp.Equal(now, set) || set.Window != window {
			t.Errorf("change %d: SetWindow returned %+v, Check %+v", i, set, now)
		}
		s = reopen(t, s)
		if now := check(t, s); !cmp.Equal(now, set) {
			t.Errorf("change %d: opened again the settings are %+v, want %+v", i, now, set)
		}
	}
	if got := check(t, s); got.Version != 4 || got.Pace != day && got.Pace != 2*day {
		t.Errorf("settings are %+v, want version 4 with the pace of a window before", got)
	}
}

// A concurrent Check may have moved ForgetBefore further than it was when SetWindow made the new
// settings.
func TestForgetBeforeNeverGoesBack(t *testing.T) {
	t.Parallel()
	now := store.NewSettings(day, clockStart)
	x := settings{current: now.At(clockStart.Add(time.Hour))}
	if got := x.replace(now.Changed(2*day, clockStart)); !got.ForgetBefore.Equal(clockStart.Add(time.Hour-day)) || got.Window != 2*day || x.current != got {
		t.Errorf("settings %+v replaced settings that are an hour later", got)
	}
}

func TestOpenRefusesSettingsThatSayNothing(t *testing.T) {
	t.Parallel()
	for _, r := range []settingsRecord{
		{}, {Version: 1, Window: "1d", ForgetBefore: clockStart}, {Version: 1, Window: "-1h", ForgetBefore: clockStart},
		{Window: "1h", ForgetBefore: clockStart}, {Version: 1, Window: "1h"}, {Version: 1, Window: "1h", Pace: "x", ForgetBefore: clockStart},
	} {
		dir := t.TempDir()
		value, err := json.Marshal(meta{Format: format, ID: "x", Settings: &r})
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, merger, metaKey, value)
		wantRefused(t, Config{Dir: dir}, "damaged", "settings")
	}
}

func TestWindowOfAConfig(t *testing.T) {
	t.Parallel()
	if got := check(t, open(t, Config{Dir: t.TempDir()})).Window; got != countmill.DefaultDedupWindow {
		t.Errorf("by default the window is %s, want %s", got, countmill.DefaultDedupWindow)
	}
	if _, err := Open(Config{Dir: t.TempDir(), Window: -1}); err == nil || !strings.Contains(err.Error(), "Window must not be negative") {
		t.Errorf("a negative window: got error %v", err)
	}
}

// A fold sweeps if nobody else does.
func TestFoldSweepsOnceADay(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	s := open(t, c.config(Config{Dir: t.TempDir(), Window: day}))
	fold(t, s, marker(clockStart.Add(-10*day)), "a", 1)
	fold(t, s, marker(clockStart), "a", 1)
	if len(s.epochs) != 2 {
		t.Errorf("just opened: got epochs %v, want 2", s.epochs)
	}
	c.age = 25 * time.Hour
	fold(t, s, marker(clockStart), "a", 1)
	if len(s.epochs) != 1 {
		t.Errorf("a day later: got epochs %v, want 1", s.epochs)
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
