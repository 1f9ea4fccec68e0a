package rows

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill/store/engine"
)

// A tx reads in a view, and notes the version of each row; 0 for an absent row.
type tx struct {
	view    *view
	mu      sync.Mutex
	read    map[engine.Key]int64
	changes []engine.Change
	ended   bool
}

var errEnded = errors.New("postgres: the transaction has ended")

// Transact runs do, and then applies its changes if no row that it has read has another version.
func (e *Engine) Transact(ctx context.Context, _ bool, do func(engine.Tx) error) (engine.Result, error) {
	if err := given(ctx); err != nil {
		return engine.Result{}, err
	}
	t := &tx{view: &view{e: e, slots: e.transacts}, read: make(map[engine.Key]int64)}
	defer t.view.Close()
	err := do(t)
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	if err != nil || len(t.changes) == 0 {
		return engine.Result{At: t.Now()}, err
	}
	b := new(batch)
	conn := t.view.take()
	if conn != nil {
		b.do("commit") // of the reads
	} else if conn, err = e.pool.Acquire(ctx); err != nil {
		return engine.Result{}, notSent(err)
	}
	defer release(conn)
	u := e.begin(b)
	u.want(engine.ErrNotApplied, nil, "select 1 / ("+e.server()+" = $1)::int", text(*e.origin.Load()))
	for i := range t.changes {
		e.tables[t.changes[i].Key.Kind].exclude(b)
	}
	u.lock(t.read, t.changes)
	if err := e.change(b, sorted(t.changes)); err != nil {
		return engine.Result{}, err
	}
	return u.applyOn(ctx, conn)
}

func (t *tx) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, errEnded
	}
	versions := make([]int64, len(keys))
	rows, err := t.view.get(ctx, keys, fields, versions)
	if err == nil {
		for i, key := range keys {
			t.read[key] = versions[i]
		}
	}
	return rows, err
}

func (t *tx) Now() time.Time { return t.view.At() }

func (t *tx) Change(c *engine.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.changes = append(t.changes, c.Clone())
	}
}

// A mode is how a row is locked.
type mode int

const (
	share  mode = iota // read, and not changed
	update             // changed
	absent             // read, and not there
)

// A run is neighbouring keys that one statement locks.
type run struct {
	t    *table
	mode mode
	keys []*array
}

// lock adds statements that lock the rows of a transaction in the order of keys, and then compare the versions of the rows that
// it has read.
func (u *unit) lock(read map[engine.Key]int64, changes []engine.Change) {
	modes := make(map[engine.Key]mode, len(read))
	for key, version := range read {
		if modes[key] = share; version == 0 {
			modes[key] = absent
		}
	}
	for i := range changes {
		if key := changes[i].Key; modes[key] != absent {
			modes[key] = update
		}
	}
	var runs []*run
	checks := make(map[engine.KindID]*run)
	versions := make(map[engine.KindID]*array)
	for _, key := range slices.SortedFunc(maps.Keys(modes), engine.Key.Compare) {
		t := u.e.tables[key.Kind]
		if n := len(runs); n == 0 || runs[n-1].t != t || runs[n-1].mode != modes[key] {
			runs = append(runs, &run{t, modes[key], t.keyArrays()})
		}
		t.appendKey(runs[len(runs)-1].keys, &key)
		if version := read[key]; version != 0 {
			if checks[key.Kind] == nil {
				checks[key.Kind], versions[key.Kind] = &run{t: t, keys: t.keyArrays()}, newArray(oidInt8s)
			}
			t.appendKey(checks[key.Kind].keys, &key)
			versions[key.Kind].int64(version)
		}
	}
	for _, r := range runs {
		r.write(u.batch)
	}
	for kind, r := range checks {
		u.want(engine.ErrConflict, nil, fmt.Sprintf("select 1 / (count(*) = %d)::int from %s, lateral (select from %s t where %s and t.xmin::text::bigint = s.version offset 0) l",
			versions[kind].n, r.t.from("version"), r.t.name, r.t.same()), params(append(r.keys, versions[kind]))...)
	}
}

func (r *run) write(b *batch) {
	if r.mode == absent {
		in := r.t.rows()
		in.keys = r.keys
		in.write(b, engine.ErrConflict, false)
		r.t.delete(b, r.keys)
		return
	}
	b.do(fmt.Sprintf("select count(*) from %s, lateral (select from %s t where %s for %s) l",
		r.t.from(), r.t.name, r.t.same(), []string{"share", "no key update"}[r.mode]), params(r.keys)...)
}
