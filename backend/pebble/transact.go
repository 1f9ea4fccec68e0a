package pebble

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill/store/engine"
)

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
	if err != nil || t.write == nil {
		return engine.Result{}, e.end(ctx, false, err)
	}
	if err := cmp.Or(t.err, e.room(ctx)); err != nil {
		return engine.Result{}, err
	}
	if soft {
		e.applyLot([]*tx{t}, true)
	} else {
		e.together(t)
	}
	return engine.Result{}, e.end(ctx, t.tried, t.err)
}

// A tx reads in a snapshot, and keeps the rows.
type tx struct {
	e       *database
	at      *snapshot
	now     time.Time
	read    []seen
	needs   []engine.Key // rows that were read, or that decide about a change
	changed []engine.Key
	ended   bool

	*write // nil without changes
	err    error
}

type seen struct {
	key   engine.Key
	value []byte // nil if there is no row
}

func (t *tx) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.ended {
		return nil, errors.New("the transaction has ended")
	}
	if t.at == nil {
		t.at, t.now, t.read = t.e.snapshot(true), t.e.moments.next(), make([]seen, 0, len(keys))
	}
	t.needs = append(t.needs, keys...)
	rows, values, err := t.e.get(ctx, t.at, keys, fields)
	for i := range values {
		t.read = append(t.read, seen{keys[i], values[i]})
	}
	return rows, err
}

func (t *tx) Now() time.Time { return t.now }

func (t *tx) Restores() int64 { return t.e.restores }

func (t *tx) Change(c *engine.Change) {
	if t.ended {
		return
	}
	if t.write == nil {
		t.write = t.e.write(t.e.db.NewBatch())
	}
	var known *[]byte
	if at := slices.IndexFunc(t.read, func(s seen) bool { return s.key == c.Key }); at >= 0 {
		known = &t.read[at].value
	} else if c.Op != engine.Upsert || t.e.kinds[c.Key.Kind].Class == engine.Docs {
		t.needs = append(t.needs, c.Key)
	}
	t.changed = append(t.changed, c.Key)
	t.err = cmp.Or(t.err, t.e.encode(t.write, c, known))
}

func (t *tx) close() {
	if t.write != nil {
		_ = t.write.Close()
	}
	if t.at != nil {
		t.e.release(t.at)
	}
}

// unchanged returns ErrConflict unless every row is as it was read. The same row always has the same value: see terms.append.
func (t *tx) unchanged() error {
	if t.at == nil || t.at.applied == t.e.applied.Load() {
		return nil
	}
	for i := range t.read {
		s := &t.read[i]
		now, err := t.e.value(t.e.db, t.e.epochs, &s.key, &t.key)
		if err != nil {
			return engine.NotApplied(err)
		}
		if (now == nil) != (s.value == nil) || !bytes.Equal(now, s.value) {
			return t.e.lots.conflict(s.key)
		}
	}
	return nil
}

// lots gather the transactions that come while others are under way, so that many callers share batches and syncs.
type lots struct {
	mu      sync.Mutex    // guards the rest
	lost    engine.Key    // the last row for which a transaction has lost
	open    []*tx         // wait together
	done    chan struct{} // closed when those have their outcomes
	running int           // transactions that are being applied or synced
	ended   sync.Cond
}

// few transactions wait for no others: the longer one waits, the likelier somebody changes a row that it has read. Nor does the next
// transaction with a row for which one has lost: beside folds of a hot counter it would lose again and again.
const few = 4

// conflict is the error of a transaction that loses because of a row.
func (l *lots) conflict(row engine.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = row
	return fmt.Errorf("%w: %q", engine.ErrConflict, row.Name)
}

// together returns when the transaction has its outcome. The first one of a lot works for all.
func (e *database) together(t *tx) {
	l := &e.lots
	l.mu.Lock()
	if slices.Contains(t.needs, l.lost) {
		l.lost = engine.Key{}
		l.mu.Unlock()
		e.applyLot([]*tx{t}, false)
		return
	}
	if l.open = append(l.open, t); len(l.open) > 1 {
		done := l.done
		l.mu.Unlock()
		<-done
		return
	}
	done := make(chan struct{})
	for l.done = done; l.running >= few; {
		l.ended.Wait()
	}
	all := l.open
	l.open, l.running = nil, l.running+len(all)
	l.mu.Unlock()
	e.applyLot(all, false)
	l.mu.Lock()
	l.running -= len(all)
	l.mu.Unlock()
	l.ended.Signal()
	close(done) // not deferred: after a panic nobody has an answer
}

// applyLot sets the outcomes of transactions, in one batch.
func (e *database) applyLot(all []*tx, soft bool) {
	var in []*tx
	var wait func() error
	var err error
	e.gate.Lock()
	changed := make(map[engine.Key]struct{}) // by the lot so far
	for _, t := range all {
		at := slices.IndexFunc(t.needs, func(k engine.Key) bool { _, has := changed[k]; return has })
		if at >= 0 {
			t.err = e.lots.conflict(t.needs[at])
		} else if t.err = t.unchanged(); t.err == nil {
			t.err = e.ready(t.write)
		}
		if t.err == nil && len(in) > 0 {
			in[0].added = append(in[0].added, t.added...)
			t.err = in[0].Apply(t.Batch, nil)
		}
		if t.err == nil {
			in = append(in, t)
			for _, key := range t.changed {
				changed[key] = struct{}{}
			}
		}
	}
	if len(in) > 0 {
		wait, err = e.apply(in[0].write, soft)
	}
	e.gate.Unlock()
	if wait != nil {
		err = wait()
	}
	for _, t := range in {
		t.tried, t.err = true, err
	}
}
