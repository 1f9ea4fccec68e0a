package store

import "time"

// Settings describe the deduplication window: how long a part that comes again is recognised; and
// the rules. The meta record in the database holds them, because processes with different windows
// would count such a part twice.
//
// A part has a time, and its marker shows that it was applied. Two rules together keep a part
// from being counted twice:
//
//   - No part is folded whose time is before ForgetBefore.
//   - No marker is removed before ForgetBefore is MarkerSlack past the time of its part.
//     Where the store removes it by the time that the marker carries (Expiry), the store's
//     clock moves ForgetBefore as well.
type Settings struct {
	// Version rises by 1 with each change of the window or of the rules.
	Version int64 `json:"version"`
	// Window is how long a part is recognised.
	Window time.Duration `json:"window"`
	// Since is when Window was set, by the store's clock.
	Since time.Time `json:"since"`
	// ForgetBefore is the oldest time that a part may have.
	ForgetBefore time.Time `json:"-"`
	// Until a longer window has taken effect, ForgetBefore follows the window before: it stays
	// Pace behind the clock until it reaches PaceUntil. Both are zero if no such change is under
	// way.
	Pace      time.Duration `json:"pace,omitempty"`
	PaceUntil time.Time     `json:"pace_until,omitzero"`
	// Rules say which counters keep series; nil if there are none.
	Rules *Rules `json:"rules,omitempty"`
	// Restores is how often the database may have lost its end when Meta.Check read the settings: by a backup that was restored, or by a
	// standby that was promoted. Then data read before may be gone.
	Restores int64 `json:"-"`
}

// A Checked is the answer of a successful Meta.Check.
type Checked struct {
	// At is the store's time; zero if the store uses the machine's clock.
	At time.Time
	// Settings are those in effect, with ForgetBefore as of now.
	Settings Settings
}

// NewSettings returns the settings of a database without markers. ForgetBefore is not before
// epoch, because a clock that shows an earlier time is wrong. So a machine whose clock begins at
// 1970 does not need years to catch up.
func NewSettings(window time.Duration, now time.Time) Settings {
	s := Settings{Version: 1, Window: window, Since: now, ForgetBefore: epoch}
	if before := now.Add(-window); before.After(epoch) {
		s.ForgetBefore = before
	}
	return s
}

// epoch is before the first version of this program.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Expiry is the time at which a store that removes markers by its clock may remove a marker. now
// is the store's time, and at the part's.
func (s Settings) Expiry(now, at time.Time) time.Time {
	return later(now, at).Add(s.Window + MarkerSlack)
}

// Changed returns the settings after the window was set to w at the store's time now. s must be
// as of now (At or Advance).
//
// Markers that exist expire by the window before. So while a longer window takes effect,
// ForgetBefore keeps its old pace until it has passed the moment of the change by ChangeSlack.
// ChangeSlack covers processes that have not read the change yet. A shorter window takes effect
// at once: markers stay for as long as was promised.
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

// At returns the settings with ForgetBefore moved to the time now. It is for stores with a
// reliable clock that remove markers by that clock.
func (s Settings) At(now time.Time) Settings {
	s.ForgetBefore = later(s.ForgetBefore, s.target(now))
	if s.Pace != 0 && !s.ForgetBefore.Before(s.PaceUntil) {
		s.Pace, s.PaceUntil = 0, time.Time{}
	}
	return s
}

// Advance is At for a store that uses the machine's clock, in a process that has run for ran
// since the last call. ForgetBefore moves at most ForgetPace times ran. Of ran at most maxRan
// counts: if it is longer, the process was suspended, perhaps between a check and its commit.
func (s Settings) Advance(now time.Time, ran time.Duration) Settings {
	most := s.ForgetBefore.Add(ForgetPace * min(ran, maxRan))
	if t := s.At(now); !t.ForgetBefore.After(most) {
		return t
	}
	s.ForgetBefore = later(s.ForgetBefore, most)
	return s
}

// target is the value of ForgetBefore for the time now, without bounds on its speed.
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
