package pebble

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store/engine"
)

// A write is a batch that is on its way.
type write struct {
	*pebbledb.Batch
	e       *database
	require []engine.Require
	checks  []check         // rows of Inserts and Updates
	docs    []engine.Change // changes of parts of documents, which are put into the batch under the lock
	added   []once          // the epochs of the batch
	alone   bool            // it is more than additions
	tried   bool            // the outcome is open
	scratch
}

// A scratch is memory for one change after the other.
type scratch struct {
	key, value, fields []byte
	terms, change      terms
}

type check struct {
	key    engine.Key
	exists bool
}

type once struct {
	kind  engine.KindID
	epoch epoch
}

// Close releases the batch, and lets a later write have the memory.
func (w *write) Close() error {
	err := w.Batch.Close()
	clear(w.checks) // they have names
	*w = write{e: w.e, checks: w.checks[:0], added: w.added[:0], scratch: w.scratch}
	w.e.writes.Put(w)
	return err
}

// encode makes a batch of changes, without reads. The caller closes it.
func (e *database) encode(b *pebbledb.Batch, changes iter.Seq[*engine.Change]) (*write, error) {
	w, _ := e.writes.Get().(*write)
	if w == nil {
		w = &write{e: e}
	}
	w.Batch = b
	if changes == nil {
		return w, nil
	}
	var err error
	for c := range changes {
		class := e.kinds[c.Key.Kind].Class
		if class == engine.Sums && c.Op == engine.Upsert {
			err = e.mergeSums(w, c)
		} else {
			err = e.encodeChecked(w, c, class)
		}
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

func (e *database) mergeSums(w *write, c *engine.Change) error {
	if w.value = w.value[:0]; len(c.Unset)+len(c.Set)+len(c.Max) == 0 {
		for i := range c.Add {
			w.value = appendAdd(w.value, &c.Add[i])
		}
	} else {
		w.change = w.change.of(c)
		w.value = w.change.append(w.value, false)
	}
	w.key = e.row(w.key[:0], &c.Key)
	return w.Merge(w.key, w.value, nil)
}

// encodeChecked encodes a change that needs a row to be as it is, or that makes others wait.
func (e *database) encodeChecked(w *write, c *engine.Change, class engine.Class) error {
	w.alone = true
	if c.Op == engine.Delete {
		return w.Delete(e.row(w.key[:0], &c.Key), nil)
	}
	if c.Op != engine.Upsert {
		w.checks = append(w.checks, check{c.Key, c.Op == engine.Update})
	}
	switch {
	case class == engine.Sums:
		return e.mergeSums(w, c)
	case class == engine.Docs && c.Op != engine.Insert:
		w.docs = append(w.docs, c.Clone())
		return nil
	}
	if err := w.changed(nil, c); err != nil {
		return err
	}
	if class == engine.Docs {
		return w.Set(e.row(w.key[:0], &c.Key), w.value, nil)
	}
	r := engine.Row{Fields: c.Set}
	at, err := epochOf(r.Int64(e.kinds[c.Key.Kind].Due))
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrRefused, err)
	}
	if o := (once{c.Key.Kind, at}); len(w.added) == 0 || w.added[len(w.added)-1] != o {
		w.added = append(w.added, o)
	}
	w.key = append(e.epoch(w.key[:0], c.Key.Kind, at), c.Key.Name...)
	return w.Set(w.key, w.value, nil)
}

// Commit looks at ctx before it begins. After that it waits for the disk without a limit.
func (e *database) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	if err := e.begin(ctx); err != nil {
		return engine.Result{}, err
	}
	defer e.closing.RUnlock()
	if err := e.room(ctx); err != nil {
		return engine.Result{}, err
	}
	// The next one has mostly the same size.
	w, err := e.encode(e.db.NewBatchWithSize(int(e.size.Load())), c.Changes)
	if err != nil {
		return engine.Result{}, err
	}
	defer w.Close()
	e.size.Store(int64(w.Len() + w.Len()/8))
	w.require, w.alone = c.Require, w.alone || len(c.Require) > 0
	e.gate.RLock()
	if w.alone {
		e.checking.Lock()
	}
	wait, err := e.apply(w, c.Soft)
	if w.alone {
		e.checking.Unlock()
	}
	e.gate.RUnlock()
	return engine.Result{}, e.end(ctx, w, wait, err)
}

// begin is the start of a call with changes. The caller ends it with closing.RUnlock.
func (e *database) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return notApplied(err)
	}
	if err := e.enter(); err != nil {
		return notApplied(err)
	}
	return nil
}

// room waits until the disk has room.
func (e *database) room(ctx context.Context) error {
	err := e.awaitRoom()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return notApplied(err)
	}
	return nil
}

// end waits until a batch is synced. An answer without a batch waits for the batches that it may have seen.
func (e *database) end(ctx context.Context, w *write, wait func() error, err error) error {
	if w.tried && err == nil {
		return wait()
	}
	if w.tried {
		return err
	}
	// Nothing was written, so the answer may rest on the commits under way.
	_, late := settled(ctx, e.syncs.underWay())
	if late = cmp.Or(late, e.isGuarded()); late != nil {
		return notApplied(late)
	}
	return err
}

// apply makes a batch visible if it may be. The caller holds the gate, and checking unless it is alone.
func (e *database) apply(w *write, soft bool) (wait func() error, err error) {
	if err := e.refusal(w); err != nil {
		return nil, err
	}
	for i := range w.docs {
		if err := e.putDoc(w, &w.docs[i]); err != nil {
			return nil, notApplied(err)
		}
	}
	if w.Empty() {
		return nil, nil
	}
	e.addEpochs(w.added)
	w.tried = true
	if soft {
		return func() error { return nil }, e.applySoft(w.Batch)
	}
	return e.directory.apply(w.Batch)
}

// refusal returns why a batch may not be applied now, or nil.
func (e *database) refusal(w *write) error {
	for i := range w.require {
		q := &w.require[i]
		value, err := e.value(e.db, e.epochs, &q.Key)
		if err != nil {
			return notApplied(err)
		}
		var r engine.Row
		if value != nil {
			fill(&r, e.kinds[q.Key.Kind].Class, value, []engine.FieldID{q.Field}, nil)
		}
		if n := r.Int64(q.Field); n > q.AtMost || r.Bad != "" {
			return fmt.Errorf("%w: a number of %q is %d%s, and may be %d", engine.ErrOutdated, q.Key.Name, n, r.Bad, q.AtMost)
		}
	}
	for i := range w.checks {
		x := &w.checks[i]
		value, err := e.value(e.db, e.epochs, &x.key)
		switch {
		case err != nil:
			return notApplied(err)
		case value == nil && x.exists:
			return fmt.Errorf("%w: %q", engine.ErrMissing, x.key.Name)
		case value != nil && !x.exists:
			return fmt.Errorf("%w: %q", engine.ErrExists, x.key.Name)
		}
	}
	return nil
}

func (e *database) putDoc(w *write, c *engine.Change) error {
	key := e.row(nil, &c.Key)
	old, err := read(e.db, key)
	if err != nil {
		return err
	}
	if err := w.changed(old, c); err != nil {
		return fmt.Errorf("%q: %w", c.Key.Name, err)
	}
	return w.Set(key, w.value, nil)
}

// addEpochs comes before a batch is applied: its outcome may be unknown, and whoever sees its rows must know the epoch.
func (e *database) addEpochs(added []once) {
	for _, o := range added {
		in := e.epochs[o.kind] // which only holders of checking change
		if at, found := slices.BinarySearch(in, o.epoch); !found {
			e.mu.Lock()
			e.setEpochsLocked(o.kind, slices.Insert(slices.Clone(in), at, o.epoch))
			e.mu.Unlock()
		}
	}
}

// Transact runs do over a snapshot, without a lock.
func (e *database) Transact(ctx context.Context, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	if err := e.begin(ctx); err != nil {
		return engine.Result{}, err
	}
	defer e.closing.RUnlock()
	t := &tx{e: e}
	defer t.close()
	err := do(t)
	t.ended = true
	if err != nil || len(t.changes) == 0 {
		return engine.Result{}, e.end(ctx, &write{}, nil, err)
	}
	if err := e.room(ctx); err != nil {
		return engine.Result{}, err
	}
	slices.SortStableFunc(t.changes, func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
	w, err := e.encode(e.db.NewBatch(), engine.Changes(t.changes...))
	if err != nil {
		return engine.Result{}, err
	}
	defer w.Close()
	e.gate.Lock()
	var wait func() error
	if err = t.unchanged(); err == nil {
		wait, err = e.apply(w, soft)
	}
	e.gate.Unlock()
	return engine.Result{}, e.end(ctx, w, wait, err)
}

// A tx reads in a snapshot, and keeps the rows that it has read.
type tx struct {
	e       *database
	at      *snapshot
	now     time.Time
	read    []seen
	changes []engine.Change
	ended   bool
}

type seen struct {
	key   engine.Key
	value []byte
}

func (t *tx) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.ended {
		return nil, errors.New("the transaction has ended")
	}
	if t.at == nil {
		t.at = t.e.snapshot()
		t.now = t.at.at
	}
	rows, values, err := t.e.get(ctx, t.at, keys, fields)
	for i := range values {
		t.read = append(t.read, seen{keys[i], values[i]})
	}
	return rows, err
}

// unchanged returns ErrConflict unless every row is as it was read. The same row always has the same value: see terms.append.
func (t *tx) unchanged() error {
	for i := range t.read {
		s := &t.read[i]
		now, err := t.e.value(t.e.db, t.e.epochs, &s.key)
		if err != nil {
			return notApplied(err)
		}
		if (now == nil) != (s.value == nil) || !bytes.Equal(now, s.value) {
			return fmt.Errorf("%w: %q", engine.ErrConflict, s.key.Name)
		}
	}
	return nil
}

func (t *tx) Now() time.Time { return t.now }

func (t *tx) Change(c *engine.Change) { t.changes = append(t.changes, c.Clone()) }

func (t *tx) close() {
	if t.at != nil {
		t.e.release(t.at)
	}
}
