package protocol

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// format is the format of all data of this package.
const format = 6

// A metaRecord is the data of the meta row, in JSON. The settings are those at the time when they were written.
type metaRecord struct {
	Format         int    `json:"format"`
	ID             string `json:"id"`
	CacheKey       []byte `json:"cache_key"` // 32 random bytes
	store.Settings        // ForgetBefore is a field of the row

	oldest int64
}

// change makes the change of the meta row that puts settings into it.
func (m *metaRecord) change(op engine.Op, x store.Settings) *engine.Change {
	m.Settings, m.oldest = x, max(m.oldest, x.Rules.Oldest())
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // its fields are text and times
	}
	return &engine.Change{Key: metaKey, Op: op, Set: []engine.Field{field(fieldOldest, m.oldest), field(fieldForget, micros(x.ForgetBefore))}, Data: data}
}

// metaOf reads the meta row. It refuses rules that it does not know: they are of a newer version.
func metaOf(r *engine.Row) (m metaRecord, err error) {
	d := json.NewDecoder(bytes.NewReader(r.Data))
	d.DisallowUnknownFields()
	if err = d.Decode(&m); err != nil || m.Format != format {
		return m, fmt.Errorf("%w: the database has the format %d, and this version knows %d: run the version that wrote it, or a later one (%v)", store.ErrDeployment, m.Format, format, err)
	}
	m.numbers(r)
	if err = m.Rules.Parse(); err == nil && (m.ID == "" || len(m.CacheKey) != sha256.Size || m.Version < 1 || m.Window <= 0 || m.Pace < 0 || m.ForgetBefore.IsZero()) {
		err = errors.New("a field is empty")
	}
	if err != nil {
		return m, fmt.Errorf("%w: the meta row is damaged: %w", store.ErrDeployment, err)
	}
	return m, nil
}

// numbers takes the fields of the row, which change without its data.
func (m *metaRecord) numbers(r *engine.Row) {
	m.oldest, m.ForgetBefore = r.Int64(fieldOldest), timeOf(r.Int64(fieldForget))
}

// ErrUnused is the error of Open for a database without a meta row that it may not make.
var ErrUnused = fmt.Errorf("%w: the database has no meta record, so countmill has not used it yet: open it once with --create", store.ErrDeployment)

// openMeta reads the meta row, or makes it. Another process may be faster.
func (s *Store) openMeta(ctx context.Context) error {
	for {
		v := s.view()
		rows, err := s.get(ctx, v, []engine.Key{metaKey}, engine.All)
		at := v.At()
		v.Close()
		if err != nil {
			return err
		}
		if rows[0].Exists {
			m, err := metaOf(&rows[0])
			if err != nil {
				return err
			}
			s.known.Store(&knownMeta{m, rows[0].Data})
			s.identity, s.machine.current, s.machine.moved = s.identityOf(&m), m.Settings, s.cfg.Age()
			behind := m.Window // that ForgetBefore is behind the clock at least
			if m.Pace != 0 && !m.ForgetBefore.After(m.PaceUntil) {
				behind = m.Pace
			}
			s.machine.time = m.ForgetBefore.Add(behind)
			return nil
		}
		if !s.limits.Exclusive && !s.cfg.Create {
			return ErrUnused
		}
		var id [16]byte
		_, _ = rand.Read(id[:])
		m := metaRecord{Format: format, ID: hex.EncodeToString(id[:]), CacheKey: make([]byte, sha256.Size)}
		_, _ = rand.Read(m.CacheKey)
		_, err = s.engine.Commit(ctx, &engine.Commit{Changes: engine.Changes(*m.change(engine.Insert, store.NewSettings(s.cfg.Window, s.clock(at))))})
		if err != nil && !errors.Is(err, engine.ErrExists) {
			return err
		}
	}
}

// metaIn reads the meta row in a transaction, which fails if the row changes before it ends.
func (s *Store) metaIn(ctx context.Context, from reader) (m metaRecord, err error) {
	rows, err := s.get(ctx, from, []engine.Key{metaKey}, engine.All)
	if err != nil {
		return m, err
	}
	return s.compare(&rows[0])
}

// compare refuses the meta row of another database. It reads a row that it knows only once.
func (s *Store) compare(r *engine.Row) (m metaRecord, err error) {
	if known := s.known.Load(); known != nil && bytes.Equal(known.data, r.Data) {
		m = known.metaRecord
		m.numbers(r)
		return m, nil
	}
	if !r.Exists {
		return m, fmt.Errorf("%w: %w: its meta row is gone; restart only if that is intended", store.ErrDeployment, store.ErrOtherDatabase)
	}
	if m, err = metaOf(r); err == nil && m.ID != s.id {
		err = fmt.Errorf("%w: %w: its id is %s and was %s; restart only if that is intended", store.ErrDeployment, store.ErrOtherDatabase, m.ID, s.id)
	}
	if err == nil {
		s.known.Store(&knownMeta{m, r.Data})
	}
	return m, err
}

// A knownMeta is a meta row that was read.
type knownMeta struct {
	metaRecord
	data []byte
}

// An identity separates the cached totals of different databases. A copied database has the original's id, but another name.
type identity struct {
	id, prefix string
	key        [sha256.Size]byte
}

func (s *Store) identityOf(m *metaRecord) identity {
	x := identity{id: m.ID}
	name := fmt.Appendf(nil, "%q %q", m.ID, s.limits.Name)
	sum := sha256.Sum256(name)
	x.prefix = "cm:" + base64.RawURLEncoding.EncodeToString(sum[:12]) + ":"
	mac := hmac.New(sha256.New, m.CacheKey)
	_, _ = mac.Write(name)
	mac.Sum(x.key[:0])
	return x
}

// ID identifies the database. Copies of it have the same.
func (s *Store) ID() string { return s.id }

// CacheIdentity returns the same in all processes.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) { return s.prefix, s.key }

// machineSettings are the settings where the store uses the machine's clock. ForgetBefore moves in memory. In the row it may
// be older, but it is never older than the markers that were removed.
type machineSettings struct {
	mu      sync.Mutex
	current store.Settings
	moved   time.Duration // the process's age when both times last moved
	time    time.Time     // the clock's, but it moves by store.ForgetPace at most, and never back
}

// asOf returns settings from the meta row as of the database's time.
func (s *Store) asOf(stored store.Settings, at time.Time) store.Settings {
	if !s.facts.machineClock {
		return stored.At(at)
	}
	x := &s.machine
	x.replace(stored)
	x.mu.Lock()
	defer x.mu.Unlock()
	now, age := s.cfg.Clock(), s.cfg.Age()
	x.time = store.Settings{ForgetBefore: x.time}.Advance(now, age-x.moved).ForgetBefore
	x.current, x.moved = x.current.Advance(now, age-x.moved), age
	return x.current
}

// replace puts newer settings from the meta row into effect, and returns the current ones.
func (x *machineSettings) replace(stored store.Settings) store.Settings {
	x.mu.Lock()
	defer x.mu.Unlock()
	if stored.Version > x.current.Version {
		if x.current.ForgetBefore.After(stored.ForgetBefore) {
			stored.ForgetBefore = x.current.ForgetBefore
		}
		x.current = stored
	}
	return x.current
}

// Check waits for a change of settings under way: who read the older ones would use them for longer after its moment than
// store.SettingsMaxAge.
func (s *Store) Check(ctx context.Context) (store.Checked, error) {
	if err := s.gate.Acquire(ctx, 1); err != nil {
		return store.Checked{}, err
	}
	defer s.gate.Release(1)
	checked, problem := s.engine.Check(ctx, []engine.Key{metaKey})
	if problem != nil && !errors.Is(problem, engine.ErrReadOnly) {
		return store.Checked{}, problem
	}
	s.restores.Store(checked.Restores)
	m, err := s.compare(&checked.Rows[0])
	if err != nil {
		return store.Checked{}, err
	}
	settings := s.asOf(m.Settings, checked.At)
	settings.Restores = checked.Restores
	return store.Checked{At: checked.At, Settings: settings}, problem
}

// SetWindow changes the meta row in a transaction.
func (s *Store) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	if window <= 0 {
		return store.Settings{}, fmt.Errorf("%w: the window must be positive, got %s", store.ErrRefused, window)
	}
	return s.changeSettings(ctx, nil, func(current store.Settings, now, _ time.Time) (store.Settings, error) {
		if window == current.Window {
			return current, nil
		}
		return current.Changed(window, now), nil
	})
}

// ChangeRules changes the meta row in a transaction. RemoveIndex removes range 1 in it.
func (s *Store) ChangeRules(ctx context.Context, change store.RuleChange) (store.Settings, error) {
	var removed []engine.Key
	if x := change.Index; x != nil && x.Step == store.RemoveIndex {
		removed = append(removed, rangeKey(x.Index.Number, 1))
	}
	return s.changeSettings(ctx, removed, func(current store.Settings, _, moment time.Time) (store.Settings, error) {
		return current.ChangeRules(change, moment, s.facts.settle)
	})
}

// changeSettings writes the settings that change returns, if their version is another one, and removes rows with them. moment
// is one of the database: the keys of older journal records are before it, also if the machine's clock was set back.
func (s *Store) changeSettings(ctx context.Context, removed []engine.Key, change func(current store.Settings, now, moment time.Time) (store.Settings, error)) (set store.Settings, err error) {
	if s.limits.Exclusive {
		// Folds by older rules have ended before the moment of the change.
		if err := s.gate.Acquire(ctx, wholeGate); err != nil {
			return set, certain(engine.NotApplied(err))
		}
		defer s.gate.Release(wholeGate)
	}
	var now time.Time
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		m, err := s.metaIn(ctx, tx)
		if err != nil {
			return err
		}
		moment := s.now(tx)
		now = s.clock(moment)
		current := s.asOf(m.Settings, now)
		if set, err = change(current, now, moment); err != nil || set.Version == current.Version {
			return err
		}
		tx.Change(m.change(engine.Update, set))
		remove(tx, removed...)
		return nil
	})
	if err != nil {
		return store.Settings{}, certain(err)
	}
	if s.facts.machineClock {
		return s.machine.replace(set), nil // as they are written: the next process begins there
	}
	return set.At(now), nil
}
