package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store/engine"
)

// loadEpochs finds the epochs that have rows, with one seek for each.
func (e *database) loadEpochs() error {
	for id := range e.kinds {
		kind := engine.KindID(id)
		if e.kinds[kind].Class != engine.Once {
			continue
		}
		first := e.kind(nil, kind)
		iter, err := e.db.NewIter(&pebbledb.IterOptions{LowerBound: first, UpperBound: after(first)})
		if err != nil {
			return err
		}
		for ok := iter.First(); ok; {
			at := epoch(binary.BigEndian.Uint16(iter.Key()[len(first):]))
			e.epochs[kind] = append(e.epochs[kind], at)
			ok = at != endless && iter.SeekGE(e.epoch(nil, kind, at+1))
		}
		if err := iter.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Expire drops epochs of Once. Rows of Docs are found by a look at all of them, which it repeats when before has
// moved by an epoch.
func (e *database) Expire(ctx context.Context, kind engine.KindID, before int64) error {
	e.expiring.Lock()
	defer e.expiring.Unlock()
	if e.kinds[kind].Class != engine.Docs {
		return e.dropEpochs(ctx, kind, before)
	}
	if last, looked := e.swept[kind]; looked && before < last+epochLength {
		return nil
	}
	whole := true
	for next := ""; ; {
		keys, more, err := e.Due(ctx, kind, before-1, next, removed)
		if err == nil {
			err = e.removeDue(ctx, kind, keys, before)
		}
		if errors.Is(err, engine.ErrConflict) { // one of them was written meanwhile: the next look finds the others
			err, whole = nil, false
		}
		if err != nil {
			// Not %w: it would say that nothing was applied.
			return fmt.Errorf("some rows that are due are still there: %v", err)
		}
		if next = more; next == "" {
			break
		}
	}
	if whole {
		e.swept[kind] = before
	}
	return nil
}

// removed is how many rows go in one transaction, during which no other commit is applied.
const removed = 200

// dropEpochs removes the epochs that are over.
func (e *database) dropEpochs(ctx context.Context, kind engine.KindID, before int64) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.closing.RUnlock()
	if err := e.room(ctx); err != nil {
		return err
	}
	e.gate.Lock()
	defer e.gate.Unlock()
	in, ended := e.epochs[kind], 0
	for ended < len(in) && in[ended].over(before) {
		ended++
	}
	if ended == 0 {
		return nil
	}
	// A snapshot has the epochs of its rows, so none is taken between the two.
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.db.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(e.epoch(nil, kind, 0), e.epoch(nil, kind, in[ended-1]+1), nil); err != nil {
		return engine.NotApplied(err)
	}
	e.setEpochsLocked(kind, in[ended:])
	defer e.applied.Add(1)
	return e.applySoft(b)
}

// setEpochsLocked needs the gate or checking too.
func (e *database) setEpochsLocked(kind engine.KindID, in []epoch) {
	e.epochs = slices.Clone(e.epochs)
	e.epochs[kind] = in
}

// removeDue removes the rows that are still due.
func (e *database) removeDue(ctx context.Context, kind engine.KindID, keys []engine.Key, before int64) error {
	_, err := e.Transact(ctx, true, func(tx engine.Tx) error {
		rows, err := tx.Get(ctx, keys, e.kinds[kind].Due)
		for i := range rows {
			if at := rows[i].Int64(e.kinds[kind].Due); at != 0 && at < before {
				tx.Change(&engine.Change{Key: keys[i], Op: engine.Delete})
			}
		}
		return err
	})
	return err
}

// Due looks at the rows behind the page before, in the order of their keys. An index would be one more row in each commit that writes a Due.
func (e *database) Due(ctx context.Context, kind engine.KindID, before int64, after string, limit int) (keys []engine.Key, next string, err error) {
	v := e.View()
	defer v.Close()
	r, due := engine.Range{Kind: kind, After: after != ""}, e.kinds[kind].Due
	if r.After {
		r.From, _ = e.decode(kind, []byte(after))
	}
	rows := v.Scan(ctx, r, due)
	defer rows.Close()
	for row := rows.Next(); row != nil; row = rows.Next() {
		if n := row.Int64(due); n == 0 || n > before {
			continue
		}
		key := row.Key
		key.Name = strings.Clone(key.Name)
		if keys = append(keys, key); len(keys) == limit {
			return keys, string(e.row(nil, &key)), nil
		}
	}
	return keys, "", rows.Err()
}
