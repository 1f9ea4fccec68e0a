package protocol_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/store/storetest"
)

// The limits of three databases, and of one with little room.
var limits = map[string]engine.Limits{
	"pebble":     {Exclusive: true, CertainOutcome: true, Conditions: true, FreeUpserts: true, Commits: 1, RowBytes: 8 << 20},
	"datastore":  {RowsCost: true, Spread: true, ByName: true, Returns: true, MaxThenAdd: true, Clock: true, Expires: true, Keys: 1000, Rows: 500, Fields: 500, RowBytes: 900 << 10, Bytes: 9 << 20, RowRate: 1},
	"cramped":    {RowsCost: true, Spread: true, ByName: true, Returns: true, MaxThenAdd: true, Clock: true, Expires: true, Keys: 20, Rows: 200, Fields: 200, RowBytes: 600 << 10, Bytes: 1 << 20, RowRate: 1},
	"postgresql": {Conditions: true, Clock: true, ByName: true, Keys: 1000, Rows: 1000, RowBytes: 8 << 20, RowRate: 300},
}

var _ store.Store = (*protocol.Store)(nil)

// A tested is a store with its database, and with the clock of both.
type tested struct {
	*protocol.Store
	db  *memory.Database
	cfg protocol.Config
	off *atomic.Int64 // how far the clock is ahead
}

func TestStore(t *testing.T) {
	t.Parallel()
	reopen := storetest.Durable(func(t *testing.T, s store.Store) store.Store {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		return s.(tested).again(t)
	})
	shared := storetest.Shared(func(t *testing.T, s store.Store, window time.Duration) store.Store {
		other := s.(tested)
		other.cfg.Window = window
		return other.again(t)
	})
	byForgetBefore := storetest.RemovesByForgetBefore(func(t *testing.T, m *storetest.Machine) store.Store {
		return openWith(t, limits["pebble"], protocol.Config{Clock: m.Now, Age: m.Age})
	}, sweep)
	byTime := storetest.RemovesByTime(func(_ *testing.T, s store.Store) { s.(tested).db.Expire(s.(tested).db.Clock()) })
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			features := []storetest.Feature{reopen}
			switch {
			case l.Exclusive:
				features = append(features, byForgetBefore)
			case l.Expires:
				features = append(features, shared, byTime)
			default:
				features = append(features, shared, storetest.RemovesByTime(sweep))
			}
			storetest.RunStore(t, func(t *testing.T) store.Store { return open(t, l) }, features...)
		})
	}
}

func sweep(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.(tested).Sweep(t.Context()); err != nil {
		t.Fatalf("Sweep: %v", err)
	}
}

func open(t *testing.T, l engine.Limits) tested {
	t.Helper()
	return openWith(t, l, protocol.Config{})
}

// openWith opens a new database.
func openWith(t *testing.T, l engine.Limits, cfg protocol.Config) tested {
	t.Helper()
	s := tested{off: new(atomic.Int64), cfg: cfg}
	s.cfg.Create = true
	if cfg.Clock == nil {
		s.cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(s.off.Load())) }
	}
	s.db = memory.New(protocol.Kinds, memory.Options{Limits: l, Errorf: t.Errorf, Clock: s.cfg.Clock})
	return s.again(t)
}

// again opens another process on the database.
func (s tested) again(t *testing.T) tested {
	t.Helper()
	var err error
	if s.Store, err = protocol.Open(t.Context(), s.db.Open(), s.cfg); err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// An engine with facts that no protocol covers is refused, and the reason names the fact that it lacks.
func TestOpenRefusesFacts(t *testing.T) {
	t.Parallel()
	for lacks, l := range map[string][]engine.Limits{
		"needs Limits.Clock":  {{}, {Conditions: true, ByName: true}},
		"needs Limits.ByName": {{Exclusive: true, Spread: true}, {Clock: true, RowsCost: true}},
	} {
		for _, limits := range l {
			e := memory.New(protocol.Kinds, memory.Options{Limits: limits}).Open()
			if _, err := protocol.Open(t.Context(), e, protocol.Config{Create: true}); !errors.Is(err, store.ErrDeployment) || !strings.Contains(err.Error(), lacks) {
				t.Errorf("%+v: got %v, want %q", limits, err, lacks)
			}
			_ = e.Close()
		}
	}
}

// A database that several processes share gets its meta row only from a process that may make it.
func TestCreate(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		db, ids := memory.New(protocol.Kinds, memory.Options{Limits: l, Errorf: t.Errorf, Clock: time.Now}), map[string]bool{}
		for i, create := range []bool{false, true, false} {
			s, err := protocol.Open(t.Context(), db.Open(), protocol.Config{Create: create})
			if refused := errors.Is(err, store.ErrDeployment); refused != (i == 0 && !l.Exclusive) || err != nil && !refused {
				t.Errorf("%s: opening %d: %v", name, i, err)
			}
			if err == nil {
				ids[s.ID()] = true
				_ = s.Close()
			}
		}
		if len(ids) != 1 || ids[""] {
			t.Errorf("%s: the ids are %v, want one", name, ids)
		}
	}
}
