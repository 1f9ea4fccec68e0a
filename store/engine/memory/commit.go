package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/store/engine"
)

// A commit has the terms of a call with changes.
type commit struct {
	require  []engine.Require
	restores *int64
	soft     bool
	tx       *tx // nil for a commit
}

func (p *process) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	if err := ctx.Err(); err != nil {
		return engine.Result{}, engine.NotApplied(err)
	}
	changes := make([]engine.Change, 0, 2)
	if c.Changes != nil {
		for change := range c.Changes {
			changes = append(changes, change.Clone())
		}
	}
	return p.apply(ctx, &Call{Ctx: ctx, Op: Commit, Changes: changes}, &commit{require: c.Require, restores: c.Restores, soft: c.Soft})
}

// apply applies the changes of a call, and waits until they are durable.
func (p *process) apply(ctx context.Context, call *Call, c *commit) (engine.Result, error) {
	if err := p.d.checkChanges(call.Changes, c); err != nil {
		return engine.Result{}, err
	}
	c.soft = c.soft && p.d.Limits.Exclusive // else a process may outlive the crash
	var done engine.Result
	err := p.call(call, func() error {
		p.d.mu.Lock()
		result, at, err := p.applyLocked(call.Changes, c)
		p.d.mu.Unlock()
		if !c.soft || err != nil {
			// An error such as ErrExists has to rest on durable rows too.
			err = cmp.Or(p.durable(ctx, at), err)
		}
		done = result
		return err
	})
	if err != nil {
		return engine.Result{}, err
	}
	return done, nil
}

// checkChanges refuses mistakes of the caller.
func (d *Database) checkChanges(changes []engine.Change, c *commit) error {
	size := 0
	for i := range changes {
		if err := d.kinds.Check(&changes[i], &d.Limits, c.tx != nil); err != nil {
			return d.mistake("%w", err)
		}
		if size += len(changes[i].Data); i > 0 && changes[i-1].Key.Compare(changes[i].Key) >= 0 {
			return d.mistake("the row %q is twice in a commit, or out of order", changes[i].Key.Name)
		}
	}
	switch {
	case d.Limits.Rows > 0 && len(changes) > d.Limits.Rows, d.Limits.Bytes > 0 && size > d.Limits.Bytes:
		return d.mistake("a commit of %d rows and %d bytes", len(changes), size)
	case len(c.require) > 0 && !d.Limits.Conditions:
		return d.mistake("this database has no conditions")
	}
	return nil
}

func (d *Database) mistake(format string, args ...any) error {
	err := fmt.Errorf("%w: mistake of the caller: %w", engine.ErrRefused, fmt.Errorf(format, args...))
	d.Errorf("memory: %v", err)
	return err
}

// applyLocked applies everything or nothing, at one moment.
func (p *process) applyLocked(changes []engine.Change, c *commit) (result engine.Result, at int64, err error) {
	d := p.d
	at = d.last
	if err = p.openLocked(); err == nil {
		err = d.refusalLocked(changes, c)
	}
	if err != nil || len(changes) == 0 {
		return engine.Result{At: d.answered(at)}, at, err
	}
	at, oldest := d.nextLocked(), d.oldestLocked()
	for i := range changes {
		change := &changes[i]
		r := d.rowLocked(change.Key)
		r.forget(oldest)
		v := r.newest().changed(change)
		v.at = at
		r.add(v)
		if d.Limits.Returns {
			row := engine.Row{Fields: v.fields}
			for _, id := range change.Want {
				result.Got = append(result.Got, row.Int64(id))
			}
		}
	}
	if !c.soft {
		if d.hard = at; d.held == nil {
			d.synced = at
		}
	}
	result.At = d.answered(at)
	return result, at, nil
}

// refusalLocked returns why the changes cannot be applied now, or nil.
func (d *Database) refusalLocked(changes []engine.Change, c *commit) error {
	if c.tx != nil {
		if c.tx.restores != d.restore {
			return fmt.Errorf("%w: another server", engine.ErrNotApplied)
		}
		for _, key := range c.tx.read {
			if d.rows[key].newest().at > c.tx.view.at {
				return fmt.Errorf("%w: %q", engine.ErrConflict, key.Name)
			}
		}
	}
	if c.restores != nil && *c.restores != d.restore {
		return fmt.Errorf("%w: %d restores, and there were %d", engine.ErrOutdated, *c.restores, d.restore)
	}
	for _, q := range c.require {
		row := engine.Row{Fields: d.rows[q.Key].newest().fields}
		if n := row.Int64(q.Field); n > q.AtMost {
			return fmt.Errorf("%w: a number of %q is %d, and may be %d", engine.ErrOutdated, q.Key.Name, n, q.AtMost)
		}
	}
	for i := range changes {
		op, exists := changes[i].Op, d.rows[changes[i].Key].newest().exists
		switch {
		case op == engine.Insert && exists:
			return fmt.Errorf("%w: %q", engine.ErrExists, changes[i].Key.Name)
		case op == engine.Update && !exists:
			return fmt.Errorf("%w: %q", engine.ErrMissing, changes[i].Key.Name)
		}
	}
	return nil
}

// changed returns the version after a change.
func (v *version) changed(c *engine.Change) version {
	if c.Op == engine.Delete {
		return version{}
	}
	next := version{exists: true, data: v.data, fields: make([]engine.Field, len(v.fields), len(v.fields)+len(c.Set)+len(c.Max)+len(c.Add))}
	copy(next.fields, v.fields)
	if c.Data != nil {
		next.data = c.Data
	}
	for _, id := range c.Unset {
		next.set(id, func(engine.Int) engine.Int { return engine.Int{} })
	}
	for _, f := range c.Set {
		next.set(f.ID, func(engine.Int) engine.Int { return f.Value })
	}
	for _, f := range c.Max {
		next.set(f.ID, func(old engine.Int) engine.Int {
			if old.Cmp(f.Value) < 0 {
				return f.Value
			}
			return old
		})
	}
	for _, f := range c.Add {
		next.set(f.ID, f.Value.Add)
	}
	return next
}

// set changes a field, and keeps none of 0.
func (v *version) set(id engine.FieldID, change func(engine.Int) engine.Int) {
	at, found := slices.BinarySearchFunc(v.fields, id, func(f engine.Field, id engine.FieldID) int { return cmp.Compare(f.ID, id) })
	if !found {
		v.fields = slices.Insert(v.fields, at, engine.Field{ID: id})
	}
	if v.fields[at].Value = change(v.fields[at].Value); v.fields[at].Value == (engine.Int{}) {
		v.fields = slices.Delete(v.fields, at, at+1)
	}
}

// A tx reads in a view, and notes the keys.
type tx struct {
	view     view
	read     []engine.Key
	changes  []engine.Change
	restores int64
}

func (p *process) Transact(ctx context.Context, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	if err := ctx.Err(); err != nil {
		return engine.Result{}, engine.NotApplied(err)
	}
	p.d.mu.Lock()
	t := &tx{view: view{p: p}, restores: p.d.restore}
	p.d.mu.Unlock()
	defer t.view.Close()
	err := do(t)
	if err != nil || len(t.changes) == 0 {
		return engine.Result{At: p.d.answered(t.view.at)}, err // its reads have waited for the disk
	}
	slices.SortStableFunc(t.changes, func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
	return p.apply(ctx, &Call{Ctx: ctx, Op: Transact, Changes: t.changes}, &commit{soft: soft, tx: t})
}

func (t *tx) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	t.read = append(t.read, keys...)
	return t.view.read(&Call{Ctx: ctx, Op: TxGet, Keys: keys}, fields)
}

func (t *tx) Now() time.Time { return t.view.At() }

func (t *tx) Restores() int64 { return t.restores }

func (t *tx) Change(c *engine.Change) { t.changes = append(t.changes, c.Clone()) }
