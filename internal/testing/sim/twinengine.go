package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
)

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
	switch {
	case e != tw.engine || !tw.machine.Lost():
	case tw.embedded:
		tw.recover(nil)
	default:
		tw.look(nil, err)
	}
	if e != tw.engine && !t.free {
		return errFenced
	}
	return err
}

func (t *twinEngine) call(c *memory.Call, do func() error) error {
	c.By = t
	return t.around(c, func() error {
		if !t.free {
			t.tw.machine.Arm()
		}
		return do()
	})
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
	var lost error
	err = t.call(&memory.Call{Ctx: ctx, Op: memory.Commit, Changes: changes}, func() error {
		return t.tw.change(e, changes, c.Soft, &lost, func() error {
			again := *c
			again.Changes = engine.Changes(changes...)
			done, err = e.Commit(background, &again)
			return err
		})
	})
	if t.free && errors.Is(err, errFenced) {
		return t.Commit(ctx, c)
	}
	return done, cmp.Or(err, lost)
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
	var lost error
	begun := false
	answer := t.call(&memory.Call{Ctx: ctx, Op: memory.Transact, Changes: x.changes}, func() error {
		return t.tw.change(x.e, x.changes, soft, &lost, func() error {
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
	return done, cmp.Or(answer, lost)
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

func (t *twinEngine) View() engine.View {
	if t.past {
		return t.tw.mirror.View()
	}
	e := t.tw.engine
	return &twinView{e.View(), t, e}
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
		return t.tw.change(e, nil, true, new(error), func() error {
			err := e.Expire(background, kind, before)
			return cmp.Or(err, t.tw.mirror.Expire(background, kind, before)) // in any case: some are perhaps gone
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

func (t *twinEngine) Moment() time.Time     { return t.tw.engine.Moment() }
func (t *twinEngine) Resume(at time.Time)   { t.tw.engine.Resume(at) }
func (t *twinEngine) Limits() engine.Limits { return t.tw.engine.Limits() }
func (t *twinEngine) Close() error          { return nil }
