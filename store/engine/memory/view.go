package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/countmill/countmill/store/engine"
)

// A view reads the versions of its moment.
type view struct {
	p    *process
	past int64 // 0 for the present
	at   int64 // 0 before the first call
	done bool
}

// ShowPast lets the next View of any process show a moment up to Options.Past ago.
func (d *Database) ShowPast(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.past = at.UnixMicro()
}

func (p *process) View() engine.View {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	v := &view{p: p, past: p.d.past}
	p.d.past = 0
	return v
}

// pin fixes the moment, and waits until everything that it shows is durable.
func (v *view) pin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := v.p.d
	d.mu.Lock()
	err := v.p.openLocked()
	if err == nil && v.at == 0 {
		err = v.takeLocked()
	}
	if v.done {
		err = errors.New("memory: the view is closed")
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return v.p.durable(ctx, v.at)
}

func (v *view) takeLocked() error {
	d := v.p.d
	at := d.nowLocked()
	if d.Limits.Exclusive {
		at = d.nextLocked() // after every Moment
	}
	if v.past != 0 {
		if at = v.past; at > d.nowLocked() || at < d.last-d.Options.Past.Microseconds() {
			return fmt.Errorf("%w: %s", engine.ErrExpired, timeOf(at))
		}
	}
	d.last, v.at = max(d.last, at), at
	d.views[v] = struct{}{}
	return nil
}

func (v *view) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	return v.read(&Call{Ctx: ctx, Op: Get, Keys: keys}, fields)
}

func (v *view) read(c *Call, fields []engine.FieldID) (rows []engine.Row, err error) {
	err = v.p.call(c, func() (err error) {
		rows, err = v.readNow(c, fields)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (v *view) readNow(c *Call, fields []engine.FieldID) ([]engine.Row, error) {
	d := v.p.d
	if len(c.Keys) > d.Limits.Keys {
		return nil, d.mistake("%d keys in a read", len(c.Keys))
	}
	if err := v.pin(c.Ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := make([]engine.Row, len(c.Keys))
	if c.Blank {
		return rows, nil
	}
	for i, key := range c.Keys {
		d.rows[key].as(v.at).fill(&rows[i], fields)
	}
	return rows, nil
}

// fill makes a row of the fields that were asked for.
func (v *version) fill(r *engine.Row, fields []engine.FieldID) {
	*r = engine.Row{Key: r.Key, Exists: v.exists, Bad: v.bad}
	if !v.exists {
		return
	}
	r.Updated = timeOf(v.at)
	if slices.Contains(fields, engine.All) {
		r.Data, r.Fields = v.data, v.fields
		return
	}
	for _, f := range v.fields {
		if slices.Contains(fields, f.ID) {
			if r.Fields == nil {
				r.Fields = make([]engine.Field, 0, len(v.fields))
			}
			r.Fields = append(r.Fields, f)
		}
	}
	if slices.Contains(fields, engine.Data) {
		r.Data = v.data
	}
}

func (v *view) At() time.Time {
	v.p.d.mu.Lock()
	defer v.p.d.mu.Unlock()
	if v.at == 0 {
		return time.Time{}
	}
	return timeOf(v.at)
}

func (v *view) Close() {
	v.p.d.mu.Lock()
	defer v.p.d.mu.Unlock()
	v.done = true
	delete(v.p.d.views, v)
}

// scanned are the keys of a kind, in the orders in which it is scanned, and perhaps of removed rows. sorted is replaced and never changed, so a
// scan keeps its own.
type scanned struct {
	sorted [2][]engine.Key // by key, by name
	added  []engine.Key    // keys that sorted lacks
}

func (s *scanned) sortedLocked(d *Database, byName bool) []engine.Key {
	if len(s.added) > 0 {
		all, oldest := make([]engine.Key, 0, len(s.sorted[0])+len(s.added)), d.oldestLocked()
		for _, key := range append(slices.Clip(s.sorted[0]), s.added...) {
			if v := d.rows[key].newest(); v.exists || v.at > oldest {
				all = append(all, key)
			} else { // nobody can see the row
				delete(d.rows, key)
			}
		}
		slices.SortFunc(all, engine.Key.Compare)
		*s = scanned{sorted: [2][]engine.Key{slices.Compact(all), nil}}
	}
	if byName && s.sorted[1] == nil {
		s.sorted[1] = slices.SortedFunc(slices.Values(s.sorted[0]), engine.Key.CompareNames)
	}
	if byName {
		return s.sorted[1]
	}
	return s.sorted[0]
}

// rows walk over the keys of a range. The view shows no row that came later.
type rows struct {
	v      *view
	ctx    context.Context
	r      engine.Range
	fields []engine.FieldID
	begun  bool
	keys   []engine.Key
	row    engine.Row
	err    error
}

func (v *view) Scan(ctx context.Context, r engine.Range, fields ...engine.FieldID) engine.Rows {
	return &rows{v: v, ctx: ctx, r: r, fields: fields}
}

// begin finds the keys of the range.
func (s *rows) begin() error {
	d, r := s.v.p.d, &s.r
	if err := s.v.pin(s.ctx); err != nil {
		return err
	}
	kind := d.kinds.Of(r.Kind)
	if kind == nil || kind.Class == engine.Once ||
		r.ByName && !(kind.ByName && d.Limits.ByName) ||
		r.Prefix != "" && kind.Places && !r.ByName ||
		r.Reverse && !(kind.ByName && r.ByName == d.Limits.ByName) {
		return d.mistake("a scan of the kind %d in an order that it does not have", r.Kind)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.scanned[r.Kind].sortedLocked(d, r.ByName)
	first := sort.Search(len(all), func(i int) bool { return all[i].Name >= r.Prefix && (r.Has(all[i]) || r.Compare(all[i], r.From) > 0) })
	n := sort.Search(len(all)-first, func(i int) bool { return !r.Has(all[first+i]) })
	s.keys = all[first:][:n]
	return nil
}

func (s *rows) Next() *engine.Row {
	if !s.begun && s.err == nil {
		s.begun, s.err = true, s.v.p.call(&Call{Ctx: s.ctx, Op: Scan, Kind: s.r.Kind}, s.begin)
	}
	d := s.v.p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.err == nil && s.v.done {
		s.err = errors.New("memory: the view is closed")
	}
	s.err = cmp.Or(s.err, s.v.p.openLocked(), s.ctx.Err())
	for s.err == nil && len(s.keys) > 0 {
		key := &s.keys[0]
		if s.r.Reverse {
			key = &s.keys[len(s.keys)-1]
			s.keys = s.keys[:len(s.keys)-1]
		} else {
			s.keys = s.keys[1:]
		}
		if v := d.rows[*key].as(s.v.at); v.exists {
			s.row.Key = *key
			v.fill(&s.row, s.fields)
			return &s.row
		}
	}
	return nil
}

func (s *rows) Err() error { return s.err }

func (s *rows) Close() { s.keys, s.begun = nil, true }
