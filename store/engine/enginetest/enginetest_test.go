package enginetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/engine/memory"
)

// databases are limits like those of databases that exist.
var databases = map[string]engine.Limits{
	"plain":     {},
	"directory": {Exclusive: true, Conditions: true, CertainOutcome: true, FreeUpserts: true, MaxThenAdd: true},
	"service": {
		Rows: 400, Fields: 500, RowBytes: 900 << 10, RowRate: 1, RowsCost: true, Spread: true, ByName: true, Returns: true,
		MaxThenAdd: true, Expires: true, Clock: true,
	},
	"server": {Conditions: true, Returns: true, ByName: true, Clock: true, RowRate: 300},
}

func under(t *testing.T, d *memory.Database) *enginetest.Under {
	u := &enginetest.Under{Engine: d.Open()}
	t.Cleanup(func() { _ = u.Engine.Close() })
	u.Reopen = func(t *testing.T) engine.Engine {
		if err := u.Engine.Close(); err != nil {
			t.Error(err)
		}
		return d.Open()
	}
	u.HoldSyncs = func(*testing.T) func() { return d.HoldSyncs() }
	u.CutPower = func(*testing.T) engine.Engine { d.CutPower(); return d.Open() }
	if !u.Engine.Limits().Exclusive {
		u.Another = func(*testing.T) engine.Engine { return d.Open() }
	}
	return u
}

// A locking engine makes commits wait for transactions that have read their rows, as some databases do.
type locking struct {
	engine.Engine
	mu   sync.Mutex
	free sync.Cond // signalled at the end of a transaction
	held map[engine.Key]int
}

func newLocking(e engine.Engine) *locking {
	l := &locking{Engine: e, held: make(map[engine.Key]int)}
	l.free.L = &l.mu
	return l
}

// busyLocked reports whether transactions hold one of the rows beside own.
func (l *locking) busyLocked(changes []engine.Change, own map[engine.Key]int) bool {
	return slices.ContainsFunc(changes, func(c engine.Change) bool { return l.held[c.Key] > own[c.Key] })
}

func (l *locking) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	if ctx.Err() != nil {
		return l.Engine.Commit(ctx, c)
	}
	all := clones(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busyLocked(all, nil) {
		l.free.Wait()
	}
	return l.Engine.Commit(ctx, with(c, all))
}

func (l *locking) Transact(ctx context.Context, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	own := make(map[engine.Key]int)
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for key, n := range own {
			l.held[key] -= n
		}
		l.free.Broadcast()
	}()
	return l.Engine.Transact(ctx, soft, func(tx engine.Tx) error {
		t := &lockingTx{Tx: tx, l: l, own: own}
		err := do(t)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err == nil && l.busyLocked(t.changes, own) {
			return engine.ErrContended
		}
		return err
	})
}

type lockingTx struct {
	engine.Tx
	l       *locking
	own     map[engine.Key]int
	changes []engine.Change
}

func (t *lockingTx) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	for _, key := range keys {
		t.l.held[key]++
		t.own[key]++
	}
	return t.Tx.Get(ctx, keys, fields...)
}

func (t *lockingTx) Change(c *engine.Change) {
	t.changes = append(t.changes, c.Clone())
	t.Tx.Change(c)
}

func TestLocks(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under {
		return &enginetest.Under{Engine: newLocking(memory.New(kinds, memory.Options{Limits: databases["service"]}).Open()), Locks: true}
	})
}

func TestMemory(t *testing.T) {
	t.Parallel()
	for name, limits := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under {
				return under(t, memory.New(kinds, memory.Options{Limits: limits}))
			})
		})
	}
}
