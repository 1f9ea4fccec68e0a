package store

import "time"

// Settings are what the meta record says about the deduplication window: for how long a
// part that comes again is recognised. They are in the database, because processes that
// go by different windows would count such a part twice.
//
// A part has a time. Markers are what a part that comes again is recognised by. Two rules
// together keep a part from being counted twice:
//
//   - No part is folded whose time is before ForgetBefore.
//   - No marker is removed before ForgetBefore is MarkerSlack past the time of its part.
//     Where the store removes it by the time that the marker carries (Expiry), the store's
//     clock moves ForgetBefore as well.
type Settings struct {
	// Version rises by 1 with each change that somebody makes.
	Version int64
	// Window is how long a part is recognised.
	Window time.Duration
	// Since is when Window was set, by the store's clock.
	Since time.Time
	// ForgetBefore is the oldest time that a part may have.
	ForgetBefore time.Time
	// Until a longer window has taken effect, ForgetBefore keeps the pace of the window
	// before: Pace behind the clock, until it has reached PaceUntil. Both are zero where
	// there is no such change.
	Pace      time.Duration
	PaceUntil time.Time
}

// A Checked is what a store answers when it is asked whether it is still the database that
// was opened.
type Checked struct {
	// At is the store's time, zero where that is the machine's own.
	At time.Time
	// Settings are those in effect, with ForgetBefore as of now.
	Settings Settings
}

// NewSettings are those of a database that has no markers yet. No clock can be right that is before
// epoch: ForgetBefore begins there at the earliest, so that a machine whose clock begins at 1970
// does not take years to catch up.
func NewSettings(window time.Duration, now time.Time) Settings {
	s := Settings{Version: 1, Window: window, Since: now, ForgetBefore: epoch}
	if before := now.Add(-window); before.After(epoch) {
		s.ForgetBefore = before
	}
	return s
}

// epoch is before the first version of this program.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Expiry is when a marker may be removed by a store that goes by its clock alone: now is
// the store's time, at the part's.
func (s Settings) Expiry(now, at time.Time) time.Time {
	return later(now, at).Add(s.Window + MarkerSlack)
}

// Changed are the settings after the window was set to w at the time now, by the store's
// clock. s must be as of now (At or Advance).
//
// Markers of the window before expire by that window. So while a longer window takes effect,
// ForgetBefore keeps its old pace until it has passed the moment of the change by ChangeSlack,
// which covers processes that have not read the change yet. A shorter window needs no such care:
// markers stay for as long as they were promised to.
func (s Settings) Changed(w time.Duration, now time.Time) Settings {
	next := s
	next.Version, next.Window, next.Since = s.Version+1, w, now
	if w > s.Window {
		next.Pace = s.Window
		if s.Pace != 0 { // a change before this one is still taking effect
			next.Pace = min(s.Pace, s.Window)
		}
		next.PaceUntil = now.Add(ChangeSlack)
	}
	return next
}

// At returns the settings with ForgetBefore where it belongs at the time now. For stores
// whose clock is beyond doubt, and which remove markers by it.
func (s Settings) At(now time.Time) Settings {
	s.ForgetBefore = later(s.ForgetBefore, s.target(now))
	if s.Pace != 0 && !s.ForgetBefore.Before(s.PaceUntil) {
		s.Pace, s.PaceUntil = 0, time.Time{}
	}
	return s
}

// Advance is At for a store whose clock is the machine's, in a process that has run for ran
// since the last call: ForgetBefore moves at most ForgetPace times as far. A longer time than
// maxRan does not count: the process was suspended, perhaps between a look and its commit.
func (s Settings) Advance(now time.Time, ran time.Duration) Settings {
	most := s.ForgetBefore.Add(ForgetPace * min(ran, maxRan))
	if t := s.At(now); !t.ForgetBefore.After(most) {
		return t
	}
	s.ForgetBefore = later(s.ForgetBefore, most)
	return s
}

// target is where ForgetBefore belongs at the time now.
func (s Settings) target(now time.Time) time.Time {
	target := now.Add(-s.Window)
	if s.Pace == 0 {
		return target
	}
	paced := now.Add(-s.Pace)
	if paced.After(s.PaceUntil) {
		paced = s.PaceUntil
	}
	return later(target, paced)
}

// Refuses reports whether a part of the time at is beyond the window.
func (s Settings) Refuses(at time.Time) bool { return at.Before(s.ForgetBefore) }

// Latest is the latest time that a part from a dead letter of the time letter may have when an
// aggregator counts it.
func Latest(letter, now time.Time) time.Time { return later(letter, now.Add(MaxAhead)) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
