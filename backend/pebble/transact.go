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
	if t.err != nil {
		return engine.Result{}, t.err
	}
	if err := ctx.Err(); err != nil {
		return engine.Result{}, notApplied(err)
	}
	if len(e.lots.running) == mostLots { // others may wait for a directory that is gone
		if err := e.Writable(); err != nil {
			return engine.Result{}, notApplied(err)
		}
	}
	if soft {
		e.applyLot([]*tx{t}, true)
	} else {
		e.lots.take(t)
	}
	return engine.Result{}, e.end(ctx, t.tried, t.err)
}

// A tx reads in a snapshot, and keeps what it has read.
type tx struct {
	e       *database
	at      *snapshot
	now     time.Time
	read    []seen
	next    int // where known begins
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
		t.at, t.now, t.read = t.e.newest(), time.Now().UTC(), make([]seen, 0, len(keys))
	}
	rows, values, err := t.e.get(ctx, t.at, keys, fields)
	for i := range values {
		t.read = append(t.read, seen{keys[i], values[i]})
	}
	return rows, err
}

func (t *tx) Now() time.Time { return t.now }

func (t *tx) Change(c *engine.Change) {
	if t.ended {
		return
	}
	if t.write == nil {
		t.write = t.e.write(t.e.db.NewBatch())
	}
	t.changed = append(t.changed, c.Key)
	t.err = cmp.Or(t.err, t.e.encode(t.write, c, t.known(&c.Key)))
}

func (t *tx) close() {
	if t.write != nil {
		_ = t.write.Close()
	}
	if t.at != nil {
		t.e.release(t.at)
	}
}

// known returns the value of a row that was read; nil if it was not. Changes mostly have the order of reads.
func (t *tx) known(key *engine.Key) *[]byte {
	for range t.read {
		s := &t.read[t.next]
		if t.next++; t.next == len(t.read) {
			t.next = 0
		}
		if s.key == *key {
			return &s.value
		}
	}
	return nil
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
			return notApplied(err)
		}
		if (now == nil) != (s.value == nil) || !bytes.Equal(now, s.value) {
			return fmt.Errorf("%w: %q", engine.ErrConflict, s.key.Name)
		}
	}
	return nil
}

// lots gather transactions beside those that are under way, so that many callers share batches and syncs. A transaction with few
// others waits for none: the longer it waits, the likelier somebody changes a row that it has read.
type lots struct {
	e       *database
	running chan struct{} // a place for each lot that is applied and synced

	mu   sync.Mutex
	open *lot // takes further transactions, if it is not nil

	changed map[engine.Key]struct{} // by those of a batch; guarded by gate
}

// A lot is transactions in their order.
type lot struct {
	all  []*tx
	done chan struct{}
}

// mostLots run at once. mostInLot bounds the time for which commits wait.
const (
	mostLots  = 4
	mostInLot = 256
)

// take returns when a transaction has its answer. The first one of a lot works for all.
func (l *lots) take(t *tx) {
	l.mu.Lock()
	own := l.open
	first := own == nil || len(own.all) == mostInLot
	if first {
		own = &lot{done: make(chan struct{})}
		l.open = own
	}
	own.all = append(own.all, t)
	l.mu.Unlock()
	if !first {
		<-own.done
		return
	}
	defer close(own.done)
	l.running <- struct{}{}
	defer func() { <-l.running }()
	l.mu.Lock()
	if l.open == own {
		l.open = nil
	}
	l.mu.Unlock()
	l.e.applyLot(own.all, false)
}

// applyLot sets the outcomes of transactions.
func (e *database) applyLot(all []*tx, soft bool) {
	err := e.awaitRoom()
	var waits []func()
	if err == nil {
		e.gate.Lock()
		for rest := all; len(rest) > 0; {
			n, wait := e.applyFirst(rest, soft)
			rest, waits = rest[n:], append(waits, wait)
		}
		e.gate.Unlock()
	}
	for _, t := range all {
		if err != nil {
			t.err = notApplied(err)
		}
	}
	for _, wait := range waits {
		wait()
	}
}

// applyFirst applies the first transactions as one batch: up to one that needs a row which another one has changed. Wait sets
// the outcomes of the n transactions.
func (e *database) applyFirst(all []*tx, soft bool) (n int, wait func()) {
	changed := e.lots.changed
	clear(changed)
	var batch *write // of the first one, and then of all
	var in []*tx
	for ; n < len(all); n++ {
		t := all[n]
		if t.needs(changed) {
			break
		}
		if t.err = t.unchanged(); t.err == nil {
			t.err = e.ready(t.write)
		}
		if t.err == nil && batch != nil {
			t.err = batch.Apply(t.Batch, nil)
		}
		if t.err != nil {
			continue
		}
		if batch == nil {
			batch = t.write
		} else {
			batch.added = append(batch.added, t.added...)
		}
		in = append(in, t)
		for _, key := range t.changed {
			changed[key] = struct{}{}
		}
	}
	if batch == nil || batch.Empty() {
		return n, func() {}
	}
	synced, err := e.apply(batch, soft)
	return n, func() {
		if synced != nil {
			err = synced()
		}
		for _, t := range in {
			t.tried, t.err = true, err
		}
	}
}

// needs reports whether one of the rows that the transaction reads, or looks at when it is applied, is among those.
func (t *tx) needs(changed map[engine.Key]struct{}) bool {
	has := func(k engine.Key) bool {
		_, has := changed[k]
		return has
	}
	if len(changed) == 0 {
		return false
	}
	return slices.ContainsFunc(t.read, func(s seen) bool { return has(s.key) }) || slices.ContainsFunc(t.checks, func(x check) bool { return has(x.key) }) ||
		slices.ContainsFunc(t.docs, func(c engine.Change) bool { return has(c.Key) })
}
