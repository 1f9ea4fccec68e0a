package aggregator

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/store"
)

// A snapshot holds the settings that one check of the database returned.
type snapshot struct {
	store.Settings
	asked age // when the check began: the settings may be that old
}

const settingsMaxAge = age(store.SettingsMaxAge / time.Second)

// unread is the snapshot before the first check. It refuses nothing and is outdated.
func unread(now age) *snapshot { return &snapshot{asked: now - settingsMaxAge} }

// beyondWindow begins the reason of a dead letter whose part is beyond the window.
const beyondWindow = "beyond the deduplication window of "

// refuses reports whether the part is beyond the deduplication window. Its marker may be
// forgotten, so it may be a duplicate, and its dead letter says maybe applied. A part without a
// marker has no duplicates, and counts at any age.
func (s *snapshot) refuses(p *part) bool { return p.marked && s.Refuses(p.from) }

// outdated reports whether the settings are too old to begin a commit. Without markers the rules
// still matter: a part that is folded by old ones is missing from a series.
func (s *snapshot) outdated(now age) bool { return now-s.asked >= settingsMaxAge }

var errOutdated = errors.New("the settings of the database were last read over " + store.SettingsMaxAge.String() +
	" ago: commits wait until they are read again")

// outdated reports whether the aggregator's settings are too old for commits.
func (a *Aggregator) outdated() bool { return a.settings.Load().outdated(a.aging.age()) }

// ReadSettings reads the settings of the database now. After it, increments are folded by settings that
// are not older than the call, unless the store did not answer, ctx ended, or the aggregator does not run. It
// saves the process that changes a rule the wait until the next check.
func (a *Aggregator) ReadSettings(ctx context.Context) {
	read := make(chan struct{})
	select {
	case a.asked <- read:
	case <-ctx.Done():
		return
	case <-a.calls.Done():
		return
	}
	select {
	case <-read:
	case <-ctx.Done():
	case <-a.calls.Done():
	}
}

// wantSettings makes the next check come now, unless one is under way. A later commit then wants it
// again.
func (a *Aggregator) wantSettings() {
	select {
	case a.asked <- make(chan struct{}):
	default:
	}
}

// Settings returns the settings that the aggregator uses; zero before the first check of the
// database. It may be called at any time.
func (a *Aggregator) Settings() store.Settings { return a.settings.Load().Settings }
