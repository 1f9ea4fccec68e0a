package aggregator

import (
	"errors"
	"time"

	"github.com/countmill/countmill/store"
)

// A snapshot holds the settings as one check of the database returned them.
type snapshot struct {
	store.Settings
	asked age // when the check began: the answer may be as old as that
}

const settingsMaxAge = age(store.SettingsMaxAge / time.Second)

// unread is the snapshot before the first check: it refuses nothing and is outdated.
func unread(now age) *snapshot { return &snapshot{asked: now - settingsMaxAge} }

// beyondWindow begins the reason of a dead letter about a part that is.
const beyondWindow = "beyond the deduplication window of "

// refuses reports whether the part is beyond the deduplication window: its marker may be
// forgotten, so it cannot be distinguished from a duplicate any more, and its dead letter says maybe
// applied. A part without a marker has no duplicates, and counts however old it is.
func (s *snapshot) refuses(p *part) bool { return p.marked && s.Refuses(p.from) }

// outdated reports whether no commit with markers may begin by these settings any more.
func (s *snapshot) outdated(now age) bool { return now-s.asked >= settingsMaxAge }

var errOutdated = errors.New("the settings of the database were last read over " + store.SettingsMaxAge.String() +
	" ago: commits with ids wait until they are read again")

// outdated reports whether the settings that are known are too old for commits with markers.
func (a *Aggregator) outdated() bool { return a.settings.Load().outdated(a.aging.age()) }

// Settings returns the settings that the aggregator uses, zero before the first check of the
// database.
func (a *Aggregator) Settings() store.Settings { return a.settings.Load().Settings }
