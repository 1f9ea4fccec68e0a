package pebble

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
)

// settings are the settings of an open store. ForgetBefore advances in memory as the process runs. On
// disk it may be older, but it is never older than the markers that were removed: the batch that
// removes them also writes it.
type settings struct {
	mu       sync.Mutex
	current  store.Settings
	changing chan struct{} // closed at the end of the change under way; nil if there is none
	moved    time.Duration // the process's age when ForgetBefore last advanced
	oldest   atomic.Int64  // the highest Rules.Oldest of this process; written with Store.sweeping held
}

// begin begins a change, before its moment. The caller calls end when it is in effect or has failed.
func (x *settings) begin() (end func()) {
	changing := make(chan struct{})
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changing = changing
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.changing = nil
		close(changing)
	}
}

// settle waits for the end of a change. Who read the settings during it would use the old ones for
// longer after its moment than store.SettingsMaxAge.
func (x *settings) settle(ctx context.Context) error {
	x.mu.Lock()
	changing := x.changing
	x.mu.Unlock()
	if changing == nil {
		return nil
	}
	select {
	case <-changing:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rules returns the rules in effect.
func (x *settings) rules() *store.Rules {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.current.Rules
}

// advance moves ForgetBefore as far as allowed, and returns the settings.
func (s *Store) advance() store.Settings {
	x := &s.settings
	x.mu.Lock()
	defer x.mu.Unlock()
	age := s.cfg.age()
	x.current = x.current.Advance(s.cfg.clock(), age-x.moved)
	x.moved = age
	return x.current
}

// replace puts settings that are on disk into effect, and returns them.
func (x *settings) replace(next store.Settings) store.Settings {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current.ForgetBefore.After(next.ForgetBefore) { // a Check has advanced it in the meantime
		next.ForgetBefore = x.current.ForgetBefore
	}
	x.current = next
	x.oldest.Store(max(x.oldest.Load(), next.Rules.Oldest()))
	return next
}

// SetWindow changes the settings in a synced batch.
func (s *Store) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	if window <= 0 {
		return store.Settings{}, fmt.Errorf("%w: the window must be positive, got %s", store.ErrRefused, window)
	}
	return s.changeSettings(ctx, func(_ *pebbledb.Batch, current store.Settings, now time.Time) (store.Settings, error) {
		if window == current.Window {
			return current, nil
		}
		return current.Changed(window, now), nil
	})
}

// ChangeRules changes the settings in a synced batch. Until the change is in effect no fold runs, so none
// by older rules comes after it.
func (s *Store) ChangeRules(ctx context.Context, change store.RuleChange) (store.Settings, error) {
	return s.changeSettings(ctx, func(b *pebbledb.Batch, current store.Settings, _ time.Time) (store.Settings, error) {
		// A moment of the store, as in the keys of the journal: those of older entries are before it, also if the
		// machine's clock was set back.
		next, err := current.ChangeRules(change, s.moments.next(), 0)
		if x := change.Index; err == nil && x != nil && x.Step == store.RemoveIndex {
			err = b.Delete(s.keys.keyRange(nil, x.Index.Number, 1), nil)
		}
		return next, err
	})
}

// changeSettings writes the settings that change returns, if their version is another one, with what
// change adds to the batch.
func (s *Store) changeSettings(ctx context.Context, change func(b *pebbledb.Batch, current store.Settings, now time.Time) (store.Settings, error)) (store.Settings, error) {
	if err := s.enter(); err != nil {
		return store.Settings{}, err
	}
	defer s.closing.RUnlock()
	s.sweeping.Lock() // until the change is in effect no fold runs
	defer s.sweeping.Unlock()
	if err := s.lockMarking(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.unlockMarking()
	defer s.settings.begin()()
	current := s.advance()
	b := s.db.NewBatch()
	defer b.Close()
	next, err := change(b, current, s.cfg.clock())
	if err != nil || next.Version == current.Version {
		return current, err
	}
	if err := s.changeMeta(b, func(m *meta) { m.setSettings(next) }); err != nil {
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

// keepSettings writes ForgetBefore if it has advanced by more than keepAfter since the last write.
// Without it, a series of processes that each end before their first sweep would all begin at the same
// ForgetBefore.
func (s *Store) keepSettings() error {
	m, err := getMeta(s.cfg, s.db)
	if err != nil {
		return err
	}
	now := s.advance()
	if now.ForgetBefore.Sub(m.Settings.ForgetBefore) < keepAfter {
		return nil
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := s.changeMeta(b, func(m *meta) { m.setSettings(now) }); err != nil {
		return err
	}
	return b.Commit(pebbledb.NoSync)
}

// keepAfter is an advance that the next process makes up for within seconds. Writing at each end would
// leave a log that the next start must replay.
const keepAfter = 10 * time.Minute

// settingsRecord is the settings in the meta record, in JSON. Durations are in Go's notation.
type settingsRecord struct {
	Version      int64     `json:"version"`
	Window       string    `json:"window"`
	Since        time.Time `json:"since"`
	ForgetBefore time.Time `json:"forget_before"`
	Pace         string    `json:"pace,omitempty"`
	PaceUntil    time.Time `json:"pace_until,omitzero"`
	store.StoredRules
}

func encodeSettings(s store.Settings) *settingsRecord {
	r := &settingsRecord{
		Version: s.Version, Window: s.Window.String(), Since: s.Since, ForgetBefore: s.ForgetBefore, PaceUntil: s.PaceUntil,
		StoredRules: s.Rules.Stored(),
	}
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
		err = errors.New("its settings are empty")
	}
	if err == nil {
		s.Rules, err = r.Rules()
	}
	return s, err
}
