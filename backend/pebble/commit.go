package pebble

import (
	"cmp"
	"context"
	"fmt"
	"slices"

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

// write begins a write in a batch. The caller closes it.
func (e *database) write(b *pebbledb.Batch) *write {
	w, _ := e.writes.Get().(*write)
	if w == nil {
		w = &write{e: e}
	}
	w.Batch = b
	return w
}

func (e *database) mergeSums(w *write, c *engine.Change) error {
	if w.value = w.value[:0]; len(c.Unset)+len(c.Set)+len(c.Max) == 0 {
		for i := range c.Add {
			if f := &c.Add[i]; f.Value != (engine.Int{}) {
				w.value = term{id: f.ID, by: f.Value}.append(w.value)
			}
		}
	} else {
		w.change = w.change.of(c)
		w.value = w.change.append(w.value, false)
	}
	w.key = e.row(w.key[:0], &c.Key)
	return w.Merge(w.key, w.value, nil)
}

// encode puts a change into the batch, without reads. known is a value of the row that is the same when the batch is applied.
func (e *database) encode(w *write, c *engine.Change, known *[]byte) error {
	class := e.kinds[c.Key.Kind].Class
	if class == engine.Sums && c.Op == engine.Upsert {
		return e.mergeSums(w, c)
	}
	w.alone = true // it needs a row to be as it is, or makes others wait
	if c.Op == engine.Delete {
		return w.Delete(e.row(w.key[:0], &c.Key), nil)
	}
	if update := c.Op == engine.Update; c.Op != engine.Upsert && (known == nil || update != (*known != nil)) {
		w.checks = append(w.checks, check{c.Key, update})
	}
	switch {
	case class == engine.Sums:
		return e.mergeSums(w, c)
	case class == engine.Docs && c.Op != engine.Insert && known != nil:
		return e.putDoc(w, *known, c)
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
	w := e.write(e.db.NewBatchWithSize(int(e.size.Load())))
	defer w.Close()
	if c.Changes != nil {
		for change := range c.Changes {
			if err := e.encode(w, change, nil); err != nil {
				return engine.Result{}, err
			}
		}
	}
	e.size.Store(int64(w.Len() + w.Len()/8))
	w.require, w.alone = c.Require, w.alone || len(c.Require) > 0
	e.gate.RLock()
	if w.alone {
		e.checking.Lock()
	}
	var wait func() error
	err := e.ready(w)
	if err == nil && !w.Empty() {
		wait, err = e.apply(w, c.Soft)
	}
	if w.alone {
		e.checking.Unlock()
	}
	e.gate.RUnlock()
	if wait != nil {
		err = wait()
	}
	return engine.Result{}, e.end(ctx, w.tried, err)
}

// begin is the start of a call with changes. The caller ends it with closing.RUnlock.
func (e *database) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return engine.NotApplied(err)
	}
	if err := e.enter(); err != nil {
		return engine.NotApplied(err)
	}
	return nil
}

// room waits until the disk has room.
func (e *database) room(ctx context.Context) error {
	if err := cmp.Or(e.awaitRoom(ctx), ctx.Err()); err != nil {
		return engine.NotApplied(err)
	}
	return nil
}

// end is the end of a call with changes. An answer without a batch waits for the batches that it may have seen.
func (e *database) end(ctx context.Context, tried bool, err error) error {
	if tried {
		return err
	}
	// Nothing was written, so the answer may rest on the commits under way.
	_, late := settled(ctx, e.syncs.underWay())
	if late = cmp.Or(late, e.isGuarded()); late != nil {
		return engine.NotApplied(late)
	}
	return err
}

// ready completes a batch that may be applied now. The caller holds the gate, and checking unless the batch is additions alone.
func (e *database) ready(w *write) error {
	if err := e.refusal(w); err != nil {
		return err
	}
	for i := range w.docs {
		old, err := e.value(e.db, e.epochs, &w.docs[i].Key, &w.key)
		if err != nil {
			return engine.NotApplied(err)
		}
		if err := e.putDoc(w, old, &w.docs[i]); err != nil {
			return err
		}
	}
	return nil
}

// apply makes a batch visible, under the locks of ready. Without an error the caller waits for its sync outside of them.
func (e *database) apply(w *write, soft bool) (wait func() error, err error) {
	e.addEpochs(w.added)
	w.tried = true
	defer e.applied.Add(1)
	if soft {
		return nil, e.applySoft(w.Batch)
	}
	return e.directory.apply(w.Batch)
}

// refusal returns why a batch may not be applied now, or nil.
func (e *database) refusal(w *write) error {
	for i := range w.require {
		q := &w.require[i]
		value, err := e.value(e.db, e.epochs, &q.Key, &w.key)
		if err != nil {
			return engine.NotApplied(err)
		}
		var r engine.Row
		if value != nil {
			fill(&r, e.kinds[q.Key.Kind].Class, value, []engine.FieldID{q.Field}, nil)
		}
		if n := r.Int64(q.Field); n > q.AtMost || r.Bad != "" {
			return fmt.Errorf("%w: a number of %q is %d%s, and may be %d", engine.ErrOutdated, q.Key.Name, n, r.Bad, q.AtMost)
		}
	}
	for i := 0; i < len(w.checks); i++ {
		absent, err := e.absent(w.checks[i:])
		if err != nil {
			return engine.NotApplied(err)
		}
		if i += absent; i == len(w.checks) {
			break
		}
		x := &w.checks[i]
		value, err := e.value(e.db, e.epochs, &x.key, &w.key)
		switch {
		case err != nil:
			return engine.NotApplied(err)
		case value == nil && x.exists:
			return fmt.Errorf("%w: %q", engine.ErrMissing, x.key.Name)
		case value != nil && !x.exists:
			return fmt.Errorf("%w: %q", engine.ErrExists, x.key.Name)
		}
	}
	return nil
}

// absent returns how many of the first checks are Inserts of neighbours in a kind of Once (the parts of one request) that are not there. One look
// at all of them costs as much as at a few single ones.
func (e *database) absent(checks []check) (n int, err error) {
	const few, number = 8, 4
	if e.kinds[checks[0].key.Kind].Class != engine.Once {
		return 0, nil
	}
	for n = 1; n < len(checks) && checks[n].follows(&checks[n-1], number); n++ {
	}
	if n < few {
		return 0, nil
	}
	for _, in := range e.epochs[checks[0].key.Kind] {
		prefix := e.epoch(nil, checks[0].key.Kind, in)
		first, last := append(slices.Clone(prefix), checks[0].key.Name...), append(slices.Clone(prefix), checks[n-1].key.Name...)
		rows, err := e.db.NewIter(&pebbledb.IterOptions{LowerBound: first, UpperBound: append(last, 0)})
		if err != nil {
			return 0, err
		}
		if rows.First() {
			found := string(rows.Key()[len(prefix):])
			n, _ = slices.BinarySearchFunc(checks[:n], found, func(x check, name string) int { return cmp.Compare(x.key.Name, name) })
		}
		if err := rows.Close(); err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
	}
	return n, nil
}

// follows reports whether two Inserts have names that differ in the last bytes only, and rise.
func (x *check) follows(before *check, differ int) bool {
	a, b := before.key.Name, x.key.Name
	same := len(a) - differ
	return same > 0 && len(a) == len(b) && a[:same] == b[:same] && a < b && x.key.Kind == before.key.Kind && !x.exists && !before.exists
}

func (e *database) putDoc(w *write, old []byte, c *engine.Change) error {
	if err := w.changed(old, c); err != nil {
		return engine.NotApplied(fmt.Errorf("%q: %w", c.Key.Name, err))
	}
	return w.Set(e.row(w.key[:0], &c.Key), w.value, nil)
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
