package pebble

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
)

// settings are those of an open store. ForgetBefore moves in memory, by what the process has
// run; on disk it is behind, but never behind the markers that were removed: it is written
// in the batch that removes them.
type settings struct {
	mu      sync.Mutex
	current store.Settings
	moved   time.Duration // the process's age when ForgetBefore was moved
}

// advance moves ForgetBefore as far as it may, and returns the settings then.
func (s *Store) advance() store.Settings {
	x := &s.settings
	x.mu.Lock()
	defer x.mu.Unlock()
	age := s.cfg.age()
	x.current = x.current.Advance(s.cfg.clock(), age-x.moved)
	x.moved = age
	return x.current
}

// replace puts settings in effect that are on disk, and returns them.
func (x *settings) replace(next store.Settings) store.Settings {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current.ForgetBefore.After(next.ForgetBefore) { // a Check has moved it meanwhile
		next.ForgetBefore = x.current.ForgetBefore
	}
	x.current = next
	return next
}

// SetWindow changes the settings in a synced batch.
func (s *Store) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	if window <= 0 {
		return store.Settings{}, fmt.Errorf("%w: the window must be positive, got %s", store.ErrRefused, window)
	}
	if err := s.enter(); err != nil {
		return store.Settings{}, err
	}
	defer s.closing.RUnlock()
	if err := s.lockMarking(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.unlockMarking()
	current := s.advance()
	if window == current.Window {
		return current, nil
	}
	next := current.Changed(window, s.cfg.clock())
	b := s.db.NewBatch()
	defer b.Close()
	if err := s.changeMeta(b, func(m *meta) { m.Settings = encodeSettings(next) }); err != nil {
		return store.Settings{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Settings{}, err
	}
	if err := s.commit(b); err != nil {
		return store.Settings{}, err
	}
	return s.settings.replace(next), nil
}

// keepSettings writes down where ForgetBefore is, if it has moved by more than keepAfter since
// it was written. Without that, processes that end before their first sweep would all begin where the
// first of them did.
func (s *Store) keepSettings() error {
	m, err := getMeta(s.cfg.Dir, s.db)
	if err != nil {
		return err
	}
	now := s.advance()
	if now.ForgetBefore.Sub(m.Settings.ForgetBefore) < keepAfter {
		return nil
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := s.changeMeta(b, func(m *meta) { m.Settings = encodeSettings(now) }); err != nil {
		return err
	}
	return b.Commit(pebbledb.NoSync)
}

// keepAfter is what the next process catches up with in some seconds. To write it at each end
// would give each start a log to replay.
const keepAfter = 10 * time.Minute

// settingsRecord is how the meta record has them, in JSON. Durations are as Go writes them.
type settingsRecord struct {
	Version      int64     `json:"version"`
	Window       string    `json:"window"`
	Since        time.Time `json:"since"`
	ForgetBefore time.Time `json:"forget_before"`
	Pace         string    `json:"pace,omitempty"`
	PaceUntil    time.Time `json:"pace_until,omitzero"`
}

func encodeSettings(s store.Settings) *settingsRecord {
	r := &settingsRecord{Version: s.Version, Window: s.Window.String(), Since: s.Since, ForgetBefore: s.ForgetBefore, PaceUntil: s.PaceUntil}
	if s.Pace != 0 {
		r.Pace = s.Pace.String()
	}
	return r
}

func (r *settingsRecord) decode() (s store.Settings, err error) {
	s = store.Settings{Version: r.Version, Since: r.Since, ForgetBefore: r.ForgetBefore, PaceUntil: r.PaceUntil}
	if s.Window, err = time.ParseDuration(r.Window); err == nil && r.Pace != "" {
		s.Pace, err = time.ParseDuration(r.Pace)
	}
	if err == nil && (s.Version < 1 || s.Window <= 0 || s.Pace < 0 || s.ForgetBefore.IsZero()) {
		err = errors.New("its settings say nothing")
	}
	return s, err
}
