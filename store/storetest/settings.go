package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Shared says that several stores can be open on one database. again opens it once more, with another
// window in its configuration.
func Shared(again func(t *testing.T, s store.Store, window time.Duration) store.Store) Feature {
	return func(su *suite) { su.again = again }
}

// RemovesByTime says that the store removes markers by their own time. remove does so as early as a TTL
// policy may: it removes all whose time has passed on the store's clock.
func RemovesByTime(remove func(t *testing.T, s store.Store)) Feature {
	return func(su *suite) { su.expire = remove }
}

// RemovesByForgetBefore says that the store uses its machine's clock, and removes markers by
// Settings.ForgetBefore. open returns an empty store on that machine, with a window of 8 days. sweep
// removes all markers that may be removed.
func RemovesByForgetBefore(open func(t *testing.T, m *Machine) store.Store, sweep func(t *testing.T, s store.Store)) Feature {
	return func(su *suite) { su.machine, su.sweep = open, sweep }
}

// A Machine has a clock that a test sets, and processes whose age does not depend on it.
type Machine struct {
	mu   sync.Mutex
	wall time.Time
	age  time.Duration
}

func newMachine() *Machine { return &Machine{wall: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

// Now is the time by the machine's clock.
func (m *Machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

// Age is how long the process has run.
func (m *Machine) Age() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.age
}

func (m *Machine) set(wall time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = wall
}

// pass lets d pass on the clock, and checks the store all the time. The process runs for a 60th of d,
// which is just enough for ForgetBefore to keep up.
func (m *Machine) pass(t *testing.T, s store.Store, d time.Duration) store.Settings {
	t.Helper()
	for step := store.ForgetPace * store.CheckEvery; d > 0; d -= step {
		m.mu.Lock()
		m.wall, m.age = m.wall.Add(min(d, step)), m.age+store.CheckEvery
		m.mu.Unlock()
		check(t, s)
	}
	return check(t, s).Settings
}

const day = 24 * time.Hour

func check(t testing.TB, s store.Store) store.Checked {
	t.Helper()
	checked, err := s.Check(t.Context())
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	return checked
}

func setWindow(t testing.TB, s store.Store, window time.Duration) store.Settings {
	t.Helper()
	return changeSettings(t, fmt.Sprintf("SetWindow(%s)", window), func() (store.Settings, error) { return s.SetWindow(t.Context(), window) })
}

// changeSettings repeats a call after an unclear answer, and lets others call in between.
func changeSettings(t testing.TB, what string, change func() (store.Settings, error)) store.Settings {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		set, err := change()
		if err == nil {
			return set
		}
		if certain(err) || time.Now().After(deadline) {
			t.Errorf("%s: %v", what, err)
			return set
		}
		<-time.After(rand.N(5 * time.Second)) // transactions that wait for each other do so together, the emulator's for 20 s
	}
}

// wantSettings compares settings that a store has just returned with the right ones at the time at. A
// store that uses its machine's clock may be behind.
func wantSettings(t testing.TB, what string, got, right store.Settings, at time.Time) {
	t.Helper()
	want := right
	if at.IsZero() {
		latest := right.At(time.Now()).ForgetBefore
		if got.ForgetBefore.Before(right.ForgetBefore) || got.ForgetBefore.After(latest) {
			t.Errorf("%s: ForgetBefore is %s, want %s to %s", what, got.ForgetBefore, right.ForgetBefore, latest)
		}
		want.ForgetBefore = got.ForgetBefore
	} else {
		want = right.At(at)
	}
	if diff := cmp.Diff(want, got, sameTimes); diff != "" {
		t.Errorf("%s: settings (-want +got):\n%s", what, diff)
	}
}

// A new store has its window. The window can be set, and then set again without effect.
func testWindowChanges(t *testing.T, su *suite) {
	s := su.open(t)
	checkSince := func(since time.Time) {
		t.Helper()
		if ago := readTime(t, s).Sub(since); ago < -time.Minute || ago > time.Hour {
			t.Errorf("the window is in effect since %s, for %s", since, ago)
		}
	}
	checked := check(t, s)
	before := checked.Settings
	checkSince(before.Since)
	wantSettings(t, "new", before, store.NewSettings(countmill.DefaultDedupWindow, before.Since), checked.At)
	for _, window := range []time.Duration{0, -1, -day} {
		if set, err := s.SetWindow(t.Context(), window); !errors.Is(err, store.ErrRefused) {
			t.Errorf("SetWindow(%s): got %+v, %v, want ErrRefused", window, set, err)
		}
	}
	for i, window := range []time.Duration{16 * day, day, 4 * day, 2 * day, 12 * time.Hour, 30 * day} {
		set := setWindow(t, s, window)
		checkSince(set.Since)
		checked := check(t, s)
		right := before.At(set.Since).Changed(window, set.Since)
		at := set.Since
		if checked.At.IsZero() {
			right, at = before.Changed(window, set.Since), time.Time{}
		}
		wantSettings(t, "set to "+window.String(), set, right, at)
		wantSettings(t, "after "+window.String()+" was set", checked.Settings, set, checked.At)
		again := setWindow(t, s, window)
		again.ForgetBefore = checked.Settings.ForgetBefore // it advances in any case
		wantSettings(t, "set to what is in effect", again, checked.Settings, checked.At)
		if before = checked.Settings; before.Version != int64(i)+2 {
			t.Errorf("after %d changes the version is %d", i+1, before.Version)
		}
	}
	if su.machine == nil {
		return
	}
	// A change from its beginning to its end, on a machine whose clock is right.
	m := newMachine()
	s = su.machine(t, m)
	right := setWindow(t, s, 16*day)
	for range 20 * 4 {
		now := m.pass(t, s, 6*time.Hour)
		right = right.At(m.Now())
		if diff := cmp.Diff(right, now, sameTimes); diff != "" {
			t.Fatalf("%s after the change: settings (-want +got):\n%s", m.Now().Sub(right.Since), diff)
		}
	}
}

// Processes with different windows in their configuration use the database's window.
func testSettingsAreShared(t *testing.T, su *suite) {
	if su.again == nil {
		t.Skip("only one store can be open on a database")
	}
	a := su.open(t)
	b := su.again(t, a, time.Hour)
	before := check(t, a).Settings
	second := check(t, b)
	wantSettings(t, "of a second store", second.Settings, before, second.At)
	for i, window := range []time.Duration{day, 16 * day, 2 * day} {
		set := setWindow(t, a, window)
		checked := check(t, b)
		wantSettings(t, "set by the other", checked.Settings, set, checked.At)
		if same := setWindow(t, b, window); same.Version != set.Version || set.Version != int64(i)+2 {
			t.Errorf("set to the same by both: versions %d and %d, want %d", set.Version, same.Version, i+2)
		}
		a, b = b, a
	}
}

func testCacheIdentityIsOfOneDatabase(t *testing.T, su *suite) {
	s := su.open(t)
	prefix, key := s.CacheIdentity()
	if p, k := s.CacheIdentity(); p != prefix || k != key || len(prefix) > 128 || key == [32]byte{} {
		t.Errorf("prefix %q, then %q; the keys are equal: %t, and zeros: %t", prefix, p, k == key, key == [32]byte{})
	}
	if p, k := su.open(t).CacheIdentity(); p == prefix || k == key {
		t.Errorf("two databases have prefixes %q and %q; the keys are equal: %t", prefix, p, k == key)
	}
	if su.again == nil {
		return
	}
	if p, k := su.again(t, s, day).CacheIdentity(); p != prefix || k != key {
		t.Errorf("one database has prefixes %q and %q; the keys are equal: %t", prefix, p, k == key)
	}
}

func testMarkersGoAtTheirTime(t *testing.T, su *suite) {
	if su.expire == nil {
		t.Skip("markers are not removed by time")
	}
	s := su.open(t)
	now := check(t, s).At
	var markers []store.Marker
	for _, after := range []time.Duration{-day, -time.Second, 0, time.Hour, 194 * time.Hour} {
		m := marker()
		m.At, m.ExpireAt = now.Add(-day), now.Add(after)
		mustFold(t, s, commit(one(m), add("a", 0, 1)))
		markers = append(markers, m)
	}
	su.expire(t, s)
	for i, m := range markers {
		_, err := s.Fold(t.Context(), commit(one(m), add("a", 0, 1)))
		if there, past := errors.Is(err, store.ErrMarkerExists), check(t, s).At.Sub(m.ExpireAt); there == (i < 3) {
			t.Errorf("%s past its time a marker is there: %t (%v)", past, there, err)
		}
	}
}

// A machine's clock shows another year for one fold, one Check and one sweep. The store forgets nothing
// that is needed, and removes no series and no journal, then or later.
func testWrongClockForgetsNothing(t *testing.T, su *suite) {
	if su.machine == nil {
		t.Skip("the store does not use its machine's clock")
	}
	for _, wrong := range []int{2031, 2040, 1970, 2026} {
		m := newMachine()
		s := su.machine(t, m)
		start := m.Now()
		old := marker()
		old.At = start.Add(-countmill.DefaultDedupWindow + time.Hour)
		addRule(t, s, "*", store.Retention{Quarters: day})
		c := seriesCommit(one(old), bucketed{"a", 0, wire.MinuteOf(start), 1})
		_, done := evidence(t, s, c, "a")
		mustFold(t, s, c)
		done()
		kept := func() []int {
			q := store.JournalQuery{Limit: 10}
			return []int{len(seriesOf(t, s, "a")), len(recordsIn(t, s, q).Records), len(rowsIn(t, s, "a", q).Rows)}
		}

		m.set(time.Date(wrong, 5, 5, 5, 0, 0, 0, time.UTC))
		other := marker()
		other.At = m.Now()
		mustFold(t, s, commit(one(other), add("a", 0, 1)))
		m.pass(t, s, time.Second)
		su.sweep(t, s)
		sweepSeries(t, s)
		m.set(start.Add(time.Minute))
		now := m.pass(t, s, time.Second)
		su.sweep(t, s)
		sweepSeries(t, s)

		if got := kept(); !slices.Equal(got, []int{1, 1, 1}) {
			t.Errorf("after a moment in %d buckets, records and rows are left: %d, want one of each", wrong, got)
		}
		if now.ForgetBefore.Sub(start.Add(-countmill.DefaultDedupWindow)) > time.Hour {
			t.Errorf("after a moment in %d ForgetBefore is %s, and the clock is %s", wrong, now.ForgetBefore, m.Now())
		}
		if _, err := s.Fold(t.Context(), commit(one(old), add("a", 0, 1))); !errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("after a moment in %d an id of %s got %v, want ErrMarkerExists", wrong, old.At, err)
		}
		// They are removed in the end.
		for range 20 {
			m.pass(t, s, day)
			su.sweep(t, s)
			sweepSeries(t, s)
		}
		if got := kept(); !slices.Equal(got, []int{0, 0, 0}) {
			t.Errorf("after their time buckets, records and rows are left: %d, want none", got)
		}
		if len(applied(t, s, old.ID)) != 0 {
			t.Errorf("a marker of %s still exists at %s", old.At, m.Now())
		}
	}
}

func testReopenedSettings(t *testing.T, su *suite) {
	if su.reopen == nil {
		t.Skip("the store is not declared Durable")
	}
	s := su.open(t)
	setWindow(t, s, day)
	set := setWindow(t, s, 16*day)
	s = su.reopen(t, s)
	checked := check(t, s)
	wantSettings(t, "reopened", checked.Settings, set, checked.At)
}
