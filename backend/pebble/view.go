package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store/engine"
)

// A snapshot is the database at a moment.
type snapshot struct {
	db       *pebbledb.Snapshot
	at       time.Time
	epochs   [][]epoch
	unsynced []chan struct{} // commits that it may show and that may not be synced yet
	applied  uint64          // it has this many batches, and perhaps later ones
	users    int             // guarded by database.mu
}

// snapshot takes a snapshot under a lock. Of two snapshots, the one with the later moment therefore shows everything that the
// other one shows. Transactions share one while nothing is applied: Pebble looks for work whenever one is closed.
func (e *database) snapshot(share bool) *snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	applied := e.applied.Load()
	if s := e.last; share && s != nil && s.users > 0 && s.applied == applied {
		s.users++
		return s
	}
	// The moment first: a commit that returned before this moment is in the snapshot. A commit that returns between
	// the two may be.
	s := &snapshot{at: e.moments.next(), applied: applied, users: 1}
	if share {
		e.last = s
	}
	s.db, s.epochs = e.db.NewSnapshot(), e.epochs
	e.snapshots[s] = struct{}{}
	s.unsynced = e.syncs.underWay()
	return s
}

// release needs enter. Close releases the other snapshots.
func (e *database) release(s *snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.users--
	if _, open := e.snapshots[s]; open && s.users == 0 {
		delete(e.snapshots, s)
		_ = s.db.Close() // nil, unless it is closed already
	}
}

// get reads rows in a snapshot, and returns their values too.
func (e *database) get(ctx context.Context, s *snapshot, keys []engine.Key, fields []engine.FieldID) ([]engine.Row, [][]byte, error) {
	if len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("%w: a read of %d keys", engine.ErrRefused, len(keys))
	}
	rows, values := make([]engine.Row, len(keys)), make([][]byte, len(keys))
	var found []engine.Field // of all rows
	var space []byte
	for i := range keys {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		value, err := e.value(s.db, s.epochs, &keys[i], &space)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %q: %w", e.kinds[keys[i].Kind].Name, keys[i].Name, err)
		}
		if values[i] = value; value != nil {
			found = fill(&rows[i], e.kinds[keys[i].Kind].Class, value, fields, found)
		}
	}
	return rows, values, nil
}

// A view is a snapshot that is taken at the first call.
type view struct {
	e    *database
	done bool
	s    *snapshot
}

// View opens a view. An open view keeps old versions of all rows on disk: close it.
func (e *database) View() engine.View { return &view{e: e} }

// pin takes the snapshot, and waits until everything that it shows is on disk: a kill of the process must not take back
// a number that was shown.
func (v *view) pin(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err != nil:
		return err
	case v.done:
		return errors.New("the view is closed")
	}
	if v.s == nil {
		v.s = v.e.snapshot(false)
	}
	if len(v.s.unsynced) == 0 {
		return nil // and nothing is written: further calls run beside each other
	}
	var err error
	v.s.unsynced, err = settled(ctx, v.s.unsynced)
	return err
}

func (v *view) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	if err := v.e.enter(); err != nil {
		return nil, err
	}
	defer v.e.closing.RUnlock()
	if err := v.pin(ctx); err != nil {
		return nil, err
	}
	rows, _, err := v.e.get(ctx, v.s, keys, fields)
	if err == nil && len(keys) > 0 && v.e.kinds[keys[0].Kind].Class == engine.Once {
		// A caller that finds a row of Once acknowledges the messages that the row marks.
		err = v.e.isGuarded()
	}
	return rows, err
}

func (v *view) At() time.Time {
	if v.s == nil {
		return time.Time{}
	}
	return v.s.at
}

func (v *view) Close() {
	v.done = true
	if v.s == nil || v.e.enter() != nil {
		return
	}
	defer v.e.closing.RUnlock()
	v.e.release(v.s)
}

// A scan is an iterator. Its row is in the iterator's memory.
type scan struct {
	v      *view
	ctx    context.Context
	r      engine.Range
	ask    []engine.FieldID
	iter   *pebbledb.Iterator // nil before the first row
	ended  bool
	row    engine.Row
	fields []engine.Field
	err    error
}

func (v *view) Scan(ctx context.Context, r engine.Range, fields ...engine.FieldID) engine.Rows {
	return &scan{v: v, ctx: ctx, r: r, ask: fields}
}

func (s *scan) begin() error {
	e, r := s.v.e, &s.r
	kind := e.kinds.Of(r.Kind)
	if kind == nil || kind.Class == engine.Once || r.ByName || r.Prefix != "" && kind.Places || r.Reverse && !kind.ByName {
		return fmt.Errorf("%w: a scan of the kind %d in an order that it does not have", engine.ErrRefused, r.Kind)
	}
	if err := s.v.pin(s.ctx); err != nil {
		return err
	}
	lower, upper := e.bounds(r)
	if bytes.Compare(lower, upper) >= 0 {
		s.ended = true
		return nil
	}
	iter, err := s.v.s.db.NewIterWithContext(s.ctx, &pebbledb.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.iter, e.scans[s] = iter, struct{}{}
	return nil
}

func (s *scan) Next() *engine.Row {
	if s.ended || s.err != nil {
		return nil
	}
	if s.err = s.v.e.enter(); s.err != nil {
		return nil
	}
	defer s.v.e.closing.RUnlock()
	valid := false
	switch begun := s.iter != nil; {
	case s.v.done:
		s.err = errors.New("the view is closed")
	case !begun:
		if s.err = s.begin(); s.err != nil || s.ended {
			return nil
		}
		if s.r.Reverse {
			valid = s.iter.Last()
		} else {
			valid = s.iter.First()
		}
	case s.r.Reverse:
		valid = s.iter.Prev()
	default:
		valid = s.iter.Next()
	}
	if s.err == nil && !valid {
		s.ended, s.err = true, s.iter.Error()
	}
	if s.err == nil && !s.ended {
		s.err = s.fill()
	}
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err != nil || s.ended {
		return nil
	}
	return &s.row
}

// fill reads the value only if it is asked for.
func (s *scan) fill() error {
	var ok bool
	if s.row.Key, ok = s.v.e.decode(s.r.Kind, s.iter.Key()); !ok {
		return fmt.Errorf("a row of the kind %d has the key %q", s.r.Kind, s.iter.Key())
	}
	if s.row.Exists = true; len(s.ask) == 0 {
		return nil
	}
	value, err := s.iter.ValueAndErr()
	if err == nil {
		s.fields = fill(&s.row, s.v.e.kinds[s.r.Kind].Class, value, s.ask, s.fields[:0])
	}
	return err
}

func (s *scan) Err() error { return s.err }

func (s *scan) Close() {
	s.ended = true
	if s.iter == nil || s.v.e.enter() != nil {
		return
	}
	defer s.v.e.closing.RUnlock()
	s.v.e.mu.Lock()
	defer s.v.e.mu.Unlock()
	if _, open := s.v.e.scans[s]; open {
		delete(s.v.e.scans, s)
		_ = s.iter.Close() // its error was in Error
	}
}
