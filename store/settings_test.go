package store

import (
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestForgetBeforeKeepsItsPaceWhileALongerWindowTakesEffect(t *testing.T) {
	t.Parallel()
	s := NewSettings(24*time.Hour, start)
	changed := s.At(start).Changed(8*24*time.Hour, start)
	for _, tt := range []struct{ now, want time.Duration }{
		{0, -24 * time.Hour},
		{time.Hour, -23 * time.Hour},
		{24 * time.Hour, 0},
		{49 * time.Hour, 25 * time.Hour},
		{50 * time.Hour, 26 * time.Hour}, // the moment of the change plus ChangeSlack
		{60 * time.Hour, 26 * time.Hour},
		{218 * time.Hour, 26 * time.Hour},
		{219 * time.Hour, 27 * time.Hour},
	} {
		got := changed.At(start.Add(tt.now))
		if want := start.Add(tt.want); !got.ForgetBefore.Equal(want) {
			t.Errorf("%s after the change: ForgetBefore is %s, want %s", tt.now, got.ForgetBefore, want)
		}
		if took := got.Pace == 0; took != (tt.now >= 50*time.Hour) {
			t.Errorf("%s after the change: pace is %s", tt.now, got.Pace)
		}
	}
	if changed.Version != 2 || !changed.Since.Equal(start) {
		t.Errorf("version %d since %s, want 2 since %s", changed.Version, changed.Since, start)
	}
}

func TestAShorterWindowTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	s := NewSettings(8*24*time.Hour, start).Changed(24*time.Hour, start)
	if got, want := s.At(start).ForgetBefore, start.Add(-24*time.Hour); !got.Equal(want) {
		t.Errorf("ForgetBefore is %s, want %s", got, want)
	}
}

// A clock that shows 2040 for a moment moves ForgetBefore by ForgetPace times the time that the
// process ran. A clock that is set back does not move it.
func TestAdvanceIsBoundedByTheRunTimeOfTheProcess(t *testing.T) {
	t.Parallel()
	s := NewSettings(24*time.Hour, start)
	ahead := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	s = s.Advance(ahead, 10*time.Second)
	if got, want := s.ForgetBefore, start.Add(-24*time.Hour+10*time.Minute); !got.Equal(want) {
		t.Errorf("after ten seconds in 2040: %s, want %s", got, want)
	}
	if got := s.Advance(start, 10*time.Second).ForgetBefore; !got.Equal(s.ForgetBefore) {
		t.Errorf("after the clock was set back: %s, want %s", got, s.ForgetBefore)
	}
	// Suspended for a day, it moves as far as in maxRan.
	if got, want := s.Advance(ahead, 24*time.Hour).ForgetBefore, s.ForgetBefore.Add(ForgetPace*maxRan); !got.Equal(want) {
		t.Errorf("after a suspension: %s, want %s", got, want)
	}
	if got, want := s.Advance(start.Add(11*time.Minute), 10*time.Second).ForgetBefore, start.Add(-24*time.Hour+11*time.Minute); !got.Equal(want) {
		t.Errorf("11 minutes later: %s, want %s", got, want)
	}
}

func TestNewSettingsOfAClockThatIsNotSet(t *testing.T) {
	t.Parallel()
	s := NewSettings(24*time.Hour, time.Unix(0, 0))
	if !s.ForgetBefore.Equal(epoch) {
		t.Errorf("ForgetBefore of a database made in 1970 is %s, want %s", s.ForgetBefore, epoch)
	}
}

// world has one part that comes again and again, a store that removes its marker as early as it
// may, and processes that use settings of different ages while the window changes.
type world struct {
	rng   *rand.Rand
	now   time.Time
	s     Settings
	past  []Settings // by the minute, as processes may have read them
	byTTL bool
}

// step lets a minute pass.
func (w *world) step() {
	w.now = w.now.Add(time.Minute)
	if w.byTTL {
		w.s = w.s.At(w.now)
	} else {
		w.s = w.s.Advance(w.now, time.Minute)
	}
	if w.rng.IntN(600) == 0 {
		w.s = w.s.Changed(time.Duration(1+w.rng.IntN(96))*time.Hour, w.now)
	}
	w.past = append(w.past, w.s)
}

// seen are the settings of a process that read them a while ago. With the store's clock it may
// have been frozen since. With its own clock ForgetBefore did not move meanwhile.
func (w *world) seen() Settings {
	back := 1 + w.rng.IntN(2)
	if w.byTTL {
		back = w.rng.IntN(int((SettingsMaxAge + frozen) / time.Minute))
	}
	return w.past[max(0, len(w.past)-1-back)]
}

// forgotten reports whether the store may have removed the marker.
func (w *world) forgotten(at, written time.Time, expiry time.Time) bool {
	if w.byTTL {
		return !expiry.After(w.now)
	}
	return w.s.ForgetBefore.After(later(at, written).Add(MarkerSlack))
}

// folds is the number of folds of a part with the time at, tried continuously for eight days.
func (w *world) folds(at time.Time) (n int) {
	var expiry, written time.Time
	for end := w.now.Add(192 * time.Hour); w.now.Before(end); w.step() {
		s := w.seen()
		if s.Refuses(at) || at.After(w.now.Add(MaxAhead)) {
			continue
		}
		if n == 0 || w.forgotten(at, written, expiry) {
			n, written, expiry = n+1, w.now, s.Expiry(w.now, at)
		}
	}
	return n
}

func (w *world) run(t *testing.T, what string, seed uint64) {
	t.Helper()
	for range 500 {
		w.step()
	}
	at := w.now.Add(time.Duration(w.rng.IntN(2000)-500) * time.Minute)
	if n := w.folds(at); n > 1 {
		t.Fatalf("%s, seed %d: a part was folded %d times", what, seed, n)
	}
}

// No part is folded twice while the window changes, with the store's clock or with ForgetBefore.
func TestNoChangeOfTheWindowForgetsTooSoon(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		for _, byTTL := range []bool{true, false} {
			w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: start, s: NewSettings(24*time.Hour, start), byTTL: byTTL}
			w.run(t, map[bool]string{true: "by TTL", false: "by ForgetBefore"}[byTTL], seed)
		}
	}
}
