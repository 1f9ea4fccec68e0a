package rows

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/store/engine"
)

// A tx reads in a view, and notes the version of each row; 0 for an absent row.
type tx struct {
	view    *view
	known   *home
	read    map[engine.Key]int64
	changes []engine.Change
}

// longest is less than store.MaxTransaction: the moment in which settings change may be as long after Tx.Now.
const longest = 4 * time.Minute

// Transact runs do, and then applies its changes if no row that it has read has another version.
func (e *Engine) Transact(ctx context.Context, _ bool, do func(engine.Tx) error) (engine.Result, error) {
	t := &tx{view: &view{e: e, slots: e.transacts}, known: e.known.Load(), read: make(map[engine.Key]int64)}
	defer t.view.Close()
	err := do(t)
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
	u.want(engine.ErrNotApplied, nil, "select 1 / count(*) from "+e.meta+" where origin = $1 and origin = "+server+" and restores = $2", text(t.known.server), number(t.known.restores))
	for i := range t.changes {
		if of := e.tables[t.changes[i].Key.Kind]; of.exclude(b) && !t.Now().IsZero() {
			// From here on no commit is taken that requires less. The process may have been frozen since the reads.
			u.want(engine.ErrNotApplied, nil, "select 1 / (extract(epoch from clock_timestamp()) * 1000000 < $1)::int", number(t.Now().Add(e.longest).UnixMicro()))
		}
	}
	u.lock(t.read, t.changes)
	slices.SortStableFunc(t.changes, func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
	if err := e.change(b, engine.Changes(t.changes...)); err != nil {
		return engine.Result{}, err
	}
	return u.applyOn(ctx, conn)
}

func (t *tx) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
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

func (t *tx) Restores() int64 { return t.known.restores }

func (t *tx) Change(c *engine.Change) { t.changes = append(t.changes, c.Clone()) }

// A mode is a lock of rows, or a condition on them.
type mode int

const (
	share  mode = iota // read, and not changed
	update             // changed
	absent             // read, and not there
	same               // of the version that was read
)

// A run is neighbouring keys of one statement.
type run struct {
	t        *table
	mode     mode
	keys     []*array
	versions *array
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
	var locks, checks []*run
	add := func(runs []*run, key *engine.Key, m mode) []*run {
		t, n := u.e.tables[key.Kind], len(runs)
		if n == 0 || runs[n-1].t != t || runs[n-1].mode != m {
			runs = append(runs, &run{t, m, t.keyArrays(), newArray(oidInt8s)})
		}
		r := runs[len(runs)-1]
		t.appendKey(r.keys, key)
		r.versions.int64(read[*key])
		return runs
	}
	for _, key := range slices.SortedFunc(maps.Keys(modes), engine.Key.Compare) {
		if locks = add(locks, &key, modes[key]); read[key] != 0 {
			checks = add(checks, &key, same)
		}
	}
	for _, r := range append(locks, checks...) {
		r.write(u.batch)
	}
}

func (r *run) write(b *batch) {
	switch r.mode {
	case absent:
		in := r.t.rows()
		in.keys = r.keys
		in.write(b, engine.ErrConflict, false)
		r.t.delete(b, r.keys)
	case same:
		b.want(engine.ErrConflict, nil, fmt.Sprintf("select 1 / (count(*) = %d)::int from %s, lateral (select from %s t where %s and t.xmin::text::bigint = s.version offset 0) l",
			r.versions.n, r.t.from("version"), r.t.name, r.t.same()), params(append(r.keys, r.versions))...)
	default:
		b.do(fmt.Sprintf("select count(*) from %s, lateral (select from %s t where %s for %s) l",
			r.t.from(), r.t.name, r.t.same(), []string{"share", "no key update"}[r.mode]), params(r.keys)...)
	}
}
