package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
)

// A Machine has the directory of a database, and loses power.
type Machine interface {
	// Open opens the database that is on the disk.
	Open(clock func() time.Time, age func() time.Duration) (engine.Engine, error)
	// Lost reports whether the power was cut since it was opened.
	Lost() bool
	// Spare ends all cuts.
	Spare()
}

// RunOn runs the schedule of a seed over the database of a machine, as a schedule with `up`.
func RunOn(seed uint64, verbose bool, m Machine) *Result {
	return runVariant(&variant{machine: m}, seed, verbose)
}

// A twin is a database of a machine, and its copy in memory. A change comes into the copy when it has taken effect. The moments of
// both rise together, so the copy shows the past, which the database does not keep. After each loss of power, and in the end, both have the same rows.
type twin struct {
	*kernel
	machine Machine
	copy    *memory.Database
	mirror  engine.Engine // of the copy

	engine engine.Engine
	soft   []engine.Key    // rows of the soft commits since the last other one
	lost   bool            // power, and no process has been started since
	old    []engine.Engine // of before
	ends   func()          // all processes that have the database
}

// open opens the database, again while the power is cut meanwhile.
func (tw *twin) open() {
	for opened := false; !opened; opened = !tw.machine.Lost() {
		if tw.engine != nil {
			tw.old = append(tw.old, tw.engine)
		}
		e, err := tw.machine.Open(func() time.Time { return tw.storeNow().UTC().Truncate(time.Microsecond) }, tw.age)
		if err != nil {
			panic(fmt.Errorf("seed %d: the database does not open: %w", tw.Seed, err))
		}
		tw.engine = e
	}
}

// change makes a call with changes. Its answer is lost with the power, unless the simulator itself asks.
func (tw *twin) change(e engine.Engine, changes []engine.Change, soft bool, do func() error) error {
	if e != tw.engine {
		return errFenced
	}
	e.Resume(tw.copy.Latest())
	err := do()
	switch {
	case tw.machine.Lost():
		if !tw.recover(changes) {
			return errFenced
		}
		return nil
	case err != nil:
		return err
	}
	tw.applied(changes)
	if tw.soft = append(tw.soft, keysOf(changes)...); !soft && len(changes) > 0 {
		tw.soft = nil
	}
	return nil
}

func keysOf(changes []engine.Change) (keys []engine.Key) {
	for i := range changes {
		keys = append(keys, changes[i].Key)
	}
	return keys
}

// applied makes changes in the copy.
func (tw *twin) applied(changes []engine.Change) {
	tw.mirror.Resume(tw.engine.Moment())
	if _, err := tw.mirror.Transact(background, false, func(tx engine.Tx) error {
		for i := range changes {
			c := changes[i]
			c.Want = nil
			tx.Change(&c)
		}
		return nil
	}); err != nil {
		tw.violate("the database takes a change that its copy refuses: %v", err)
	}
}

// recover opens the rest, and reports whether the changes under way are in it. Soft ones may be gone.
func (tw *twin) recover(changes []engine.Change) bool {
	tw.lost = true
	tw.Cuts++
	tw.ends()
	tw.open()
	tw.say(nil, "!! the power is cut")
	found := slices.ContainsFunc(keysOf(changes), func(key engine.Key) bool { return !slices.Contains(tw.soft, key) && !tw.same(key) })
	if found { // and the soft ones before it
		tw.applied(changes)
	} else {
		for _, key := range tw.soft {
			tw.align(key)
		}
	}
	tw.soft = nil
	tw.compare()
	return found
}

func rowIn(e engine.Engine, key engine.Key) engine.Row {
	v := e.View(time.Time{})
	defer v.Close()
	return must(v.Get(background, []engine.Key{key}, engine.All))[0]
}

// align makes a row of the copy as that of the database is.
func (tw *twin) align(key engine.Key) {
	if row := rowIn(tw.engine, key); !tw.same(key) {
		tw.applied([]engine.Change{{Key: key, Op: engine.Delete}})
		if row.Exists {
			tw.applied([]engine.Change{{Key: key, Set: row.Fields, Data: row.Data}})
		}
	}
}

// same reports whether a row is as in the copy. The database may keep one that has expired.
func (tw *twin) same(key engine.Key) bool {
	a, b, kind := rowIn(tw.engine, key), rowIn(tw.mirror, key), &protocol.Kinds[key.Kind]
	return equal(&a, &b) || kind.Expires && !b.Exists && a.Int64(kind.Due) <= tw.storeNow().UnixMicro()
}

func equal(a, b *engine.Row) bool {
	return a.Exists == b.Exists && a.Bad == b.Bad && bytes.Equal(a.Data, b.Data) && slices.Equal(a.Fields, b.Fields)
}

// compare compares all rows. A database may keep rows that have expired.
func (tw *twin) compare() {
	for id := range protocol.Kinds {
		kind, k := engine.KindID(id), &protocol.Kinds[id]
		if k.Class == engine.Once {
			keys, _ := must2(tw.mirror.Due(background, kind, math.MaxInt64, "", math.MaxInt32))
			for _, key := range keys {
				if !tw.same(key) {
					tw.violate("the database lacks the %s %q, or has another", k.Name, key.Name)
				}
			}
			continue
		}
		theirs, ours := tw.rows(tw.engine, kind), tw.rows(tw.mirror, kind)
		for key, row := range theirs {
			if mine, ok := ours[key]; ok && !equal(&row, &mine) || !ok && !k.Expires {
				tw.violate("the database has the %s %q as %v, and its copy as %v (%t)", k.Name, key.Name, row.Fields, mine.Fields, ok)
			}
			delete(ours, key)
		}
		for key := range ours {
			tw.violate("the database lacks the %s %q", k.Name, key.Name)
		}
	}
}

func must2[A, B any](a A, b B, err error) (A, B) { return must(a, err), b }

// rows are all rows of a kind.
func (tw *twin) rows(e engine.Engine, kind engine.KindID) map[engine.Key]engine.Row {
	all := make(map[engine.Key]engine.Row)
	v := e.View(time.Time{})
	defer v.Close()
	scan := v.Scan(background, engine.Range{Kind: kind}, engine.All)
	defer scan.Close()
	for row := scan.Next(); row != nil; row = scan.Next() {
		r := *row
		r.Key.Name = strings.Clone(r.Key.Name)
		r.Data, r.Fields = slices.Clone(r.Data), slices.Clone(r.Fields)
		all[r.Key] = r
	}
	if err := scan.Err(); err != nil {
		tw.violate("the rows of %s: %v", protocol.Kinds[kind].Name, err)
	}
	return all
}

// close closes the databases of before the last loss of power, and in the end all.
func (tw *twin) close(all bool) {
	synctest.Wait()
	if all {
		tw.old = append(tw.old, tw.engine)
	}
	for _, e := range tw.old {
		_ = e.Close() // the disk is gone
	}
	tw.old = nil
}

// A twinEngine is the engine of a process, whose calls park.
type twinEngine struct {
	engine.Engine
	tw     *twin
	around func(*memory.Call, func() error) error
	free   bool // of the simulator, or of a process that starts: calls are made again after a loss of power
	past   bool // its views are of the copy
}

// reads makes a call without changes.
func (t *twinEngine) reads(e engine.Engine, do func() error) error {
	tw := t.tw
	e.Resume(tw.copy.Latest())
	err := do()
	tw.mirror.Resume(e.Moment())
	if e == tw.engine && tw.machine.Lost() {
		tw.recover(nil)
	}
	if e != tw.engine && !t.free {
		return errFenced
	}
	return err
}

func (t *twinEngine) call(c *memory.Call, do func() error) error {
	c.By = t
	return t.around(c, do)
}

func (t *twinEngine) Commit(ctx context.Context, c *engine.Commit) (done engine.Result, err error) {
	if err := ctx.Err(); err != nil {
		return done, fmt.Errorf("%w: %w", engine.ErrNotApplied, err)
	}
	var changes []engine.Change
	if c.Changes != nil {
		for x := range c.Changes {
			changes = append(changes, x.Clone())
		}
	}
	e := t.tw.engine
	err = t.call(&memory.Call{Ctx: ctx, Op: memory.Commit, Changes: changes}, func() error {
		return t.tw.change(e, changes, c.Soft, func() error {
			again := *c
			again.Changes = engine.Changes(changes...)
			done, err = e.Commit(background, &again)
			return err
		})
	})
	if t.free && errors.Is(err, errFenced) {
		return t.Commit(ctx, c)
	}
	return done, err
}

// A twinTx parks at its end, before its changes take effect.
type twinTx struct {
	engine.Tx
	t       *twinEngine
	e       engine.Engine
	changes []engine.Change
}

func (t *twinEngine) Transact(ctx context.Context, soft bool, do func(engine.Tx) error) (done engine.Result, err error) {
	if err := ctx.Err(); err != nil {
		return done, fmt.Errorf("%w: %w", engine.ErrNotApplied, err)
	}
	x := &twinTx{t: t, e: t.tw.engine}
	asks, goes, ended := make(chan struct{}), make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(ended)
		done, err = x.e.Transact(context.WithoutCancel(ctx), soft, func(tx engine.Tx) error {
			x.Tx = tx
			if err := do(x); err != nil || len(x.changes) == 0 {
				return err
			}
			close(asks)
			if !<-goes {
				return errFenced
			}
			for i := range x.changes {
				tx.Change(&x.changes[i])
			}
			return nil
		})
	}()
	select {
	case <-ended:
		return done, err
	case <-asks:
	}
	slices.SortStableFunc(x.changes, func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
	begun := false
	answer := t.call(&memory.Call{Ctx: ctx, Op: memory.Transact, Changes: x.changes}, func() error {
		return t.tw.change(x.e, x.changes, soft, func() error {
			begun = true
			goes <- true
			<-ended
			return err
		})
	})
	if !begun {
		goes <- false
		<-ended
	}
	if t.free && errors.Is(answer, errFenced) {
		return t.Transact(ctx, soft, do)
	}
	return done, answer
}

func (x *twinTx) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) (rows []engine.Row, err error) {
	err = x.t.call(&memory.Call{Ctx: ctx, Op: memory.TxGet, Keys: keys}, func() error {
		return x.t.reads(x.e, func() error {
			rows, err = x.Tx.Get(ctx, keys, fields...)
			return err
		})
	})
	return rows, err
}

func (x *twinTx) Change(c *engine.Change) { x.changes = append(x.changes, c.Clone()) }

type twinView struct {
	engine.View
	t *twinEngine
	e engine.Engine
}

func (t *twinEngine) View(past time.Time) engine.View {
	if t.past {
		return t.tw.mirror.View(past)
	}
	e := t.tw.engine
	return &twinView{e.View(past), t, e}
}

func (v *twinView) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) (rows []engine.Row, err error) {
	err = v.t.call(&memory.Call{Ctx: ctx, Op: memory.Get, Keys: keys}, func() error {
		return v.t.reads(v.e, func() error {
			rows, err = v.View.Get(ctx, keys, fields...)
			return err
		})
	})
	return rows, err
}

func (v *twinView) Scan(ctx context.Context, r engine.Range, fields ...engine.FieldID) engine.Rows {
	rows := &twinRows{Rows: v.View.Scan(ctx, r, fields...)}
	rows.first = func() (first *engine.Row, err error) {
		err = v.t.call(&memory.Call{Ctx: ctx, Op: memory.Scan, Kind: r.Kind}, func() error {
			return v.t.reads(v.e, func() error {
				first = rows.Rows.Next()
				return rows.Rows.Err()
			})
		})
		return first, err
	}
	return rows
}

// twinRows park before the first row.
type twinRows struct {
	engine.Rows
	first func() (*engine.Row, error)
	err   error
}

func (r *twinRows) Next() (row *engine.Row) {
	first := r.first
	switch r.first = nil; {
	case first != nil:
		if row, r.err = first(); r.err != nil {
			return nil
		}
		return row
	case r.err != nil:
		return nil
	}
	return r.Rows.Next()
}

func (r *twinRows) Err() error { return cmp.Or(r.err, r.Rows.Err()) }

func (t *twinEngine) Due(ctx context.Context, kind engine.KindID, before int64, after string, limit int) (keys []engine.Key, next string, err error) {
	e := t.tw.engine
	err = t.call(&memory.Call{Ctx: ctx, Op: memory.Due, Kind: kind}, func() error {
		return t.reads(e, func() error {
			keys, next, err = e.Due(ctx, kind, before, after, limit)
			return err
		})
	})
	return keys, next, err
}

// Expire lets expired rows of the copy go at once.
func (t *twinEngine) Expire(ctx context.Context, kind engine.KindID, before int64) error {
	e := t.tw.engine
	return t.call(&memory.Call{Ctx: ctx, Op: memory.Expire, Kind: kind}, func() error {
		return t.tw.change(e, nil, true, func() error {
			err := e.Expire(background, kind, before)
			if err == nil {
				err = t.tw.mirror.Expire(background, kind, before)
			}
			return err
		})
	})
}

func (t *twinEngine) Check(ctx context.Context, with []engine.Key) (checked engine.Checked, err error) {
	e := t.tw.engine
	err = t.call(&memory.Call{Ctx: ctx, Op: memory.Check, Keys: with}, func() error {
		return t.reads(e, func() error {
			checked, err = e.Check(ctx, with)
			return err
		})
	})
	return checked, err
}

func (t *twinEngine) Moment() time.Time   { return t.tw.engine.Moment() }
func (t *twinEngine) Resume(at time.Time) { t.tw.engine.Resume(at) }
func (t *twinEngine) Limits() engine.Limits {
	l := t.tw.engine.Limits()
	l.Past = t.tw.copy.Limits.Past // of the copy
	return l
}
func (t *twinEngine) Close() error { return nil }
