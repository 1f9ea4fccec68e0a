package pebble

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/countmill/countmill/store/engine"
)

// A term says how the number of a field changes. Terms of a field compose in every grouping, so Pebble may merge those
// of neighbouring commits before it knows the number. A row is the terms that make it from nothing.
//
//	add     x + by
//	set     by
//	raise   the larger of x + by and floor
//
// A value is the terms of a row by rising field. Each is the varint of the field's number times 4, plus its form, and then
//
//	0   add: by as a varint
//	1   set: by as a varint
//	2   raise: by and floor as varints
//	3   by beyond 64 bits: a byte, 0 for add and 1 for set, and 16 bytes
//
// Rows of Docs and Once have the length of that before it, as a varint, and their data behind it.
type term struct {
	id    engine.FieldID
	op    op
	by    engine.Int
	floor int64
}

type op uint8

const (
	add op = iota
	set
	raise
	wide // in values only
)

// then returns the term that does t and then u.
func (t term) then(u term) term {
	if u.op == set {
		return u
	}
	t.by = t.by.Add(u.by)
	by, _ := u.by.Int64()
	switch {
	case t.op == raise && u.op == raise:
		t.floor = max(t.floor+by, u.floor)
	case t.op == raise:
		t.floor += by
	case t.op == add && u.op == raise:
		t.op, t.floor = raise, u.floor
	case u.op == raise: // after a set
		t.by = atLeast(t.by, u.floor)
	}
	return t
}

func atLeast(n engine.Int, floor int64) engine.Int {
	if least := engine.IntOf(floor); n.Cmp(least) < 0 {
		return least
	}
	return n
}

// value is the number that t makes from 0.
func (t term) value() engine.Int {
	if t.op == raise {
		return atLeast(t.by, t.floor)
	}
	return t.by
}

func (t term) append(dst []byte) []byte {
	head := uint64(t.id) << 2
	by, fits := t.by.Int64()
	if !fits {
		dst = append(binary.AppendUvarint(dst, head|uint64(wide)), byte(t.op))
		dst = binary.BigEndian.AppendUint64(dst, uint64(t.by.Hi))
		return binary.BigEndian.AppendUint64(dst, t.by.Lo)
	}
	dst = binary.AppendVarint(binary.AppendUvarint(dst, head|uint64(t.op)), by)
	if t.op == raise {
		dst = binary.AppendVarint(dst, t.floor)
	}
	return dst
}

var errDamaged = errors.New("its value is damaged")

// nextTerm takes a term off a value.
func nextTerm(b []byte) (t term, rest []byte, err error) {
	head, n := binary.Uvarint(b)
	if n <= 0 || head>>2 > uint64(engine.All) {
		return t, nil, errDamaged
	}
	t.id, t.op, b = engine.FieldID(head>>2), op(head&3), b[n:]
	if t.op == wide {
		if len(b) < 17 || b[0] > byte(set) {
			return t, nil, errDamaged
		}
		t.op, t.by = op(b[0]), engine.Int{Hi: int64(binary.BigEndian.Uint64(b[1:])), Lo: binary.BigEndian.Uint64(b[9:])}
		return t, b[17:], nil
	}
	by, n := binary.Varint(b)
	if n <= 0 {
		return t, nil, errDamaged
	}
	t.by, b = engine.IntOf(by), b[n:]
	if t.op == raise {
		if t.floor, n = binary.Varint(b); n <= 0 {
			return t, nil, errDamaged
		}
		b = b[n:]
	}
	return t, b, nil
}

// terms are those of a row, by rising field.
type terms []term

// merge adds the terms of a value that is newer than all of t, or older.
func (t *terms) merge(value []byte, older bool) error {
	all := *t
	for at := 0; len(value) > 0; at++ {
		x, rest, err := nextTerm(value)
		if err != nil {
			return err
		}
		value = rest
		for at < len(all) && all[at].id < x.id {
			at++
		}
		switch {
		case at == len(all) || all[at].id != x.id:
			all = slices.Insert(all, at, x)
		case older:
			all[at] = x.then(all[at])
		default:
			all[at] = all[at].then(x)
		}
	}
	*t = all
	return nil
}

// append appends a value. A whole row is its numbers alone, so that the same row always has the same value.
func (t terms) append(dst []byte, whole bool) []byte {
	for _, x := range t {
		if whole {
			x.op, x.by = add, x.value()
		}
		if x.op != add || x.by != (engine.Int{}) {
			dst = x.append(dst)
		}
	}
	return dst
}

// of returns the terms of a change, in the memory of t.
func (t terms) of(c *engine.Change) terms {
	t = t[:0]
	for _, id := range c.Unset {
		t = append(t, term{id: id, op: set})
	}
	for _, f := range c.Set {
		t = append(t, term{id: f.ID, op: set, by: f.Value})
	}
	for _, f := range c.Max {
		most, _ := f.Value.Int64()
		t = append(t, term{id: f.ID, op: raise, floor: most})
	}
	for _, f := range c.Add {
		t = append(t, term{id: f.ID, by: f.Value})
	}
	if len(t) > len(c.Add) { // which are in order
		slices.SortStableFunc(t, func(a, b term) int { return cmp.Compare(a.id, b.id) })
		for i := 1; i < len(t); i++ {
			if t[i-1].id == t[i].id { // Max and Add of one field
				t[i-1] = t[i-1].then(t[i])
				t = slices.Delete(t, i, i+1)
			}
		}
	}
	return t
}

// split divides the value of a row into its terms and its data.
func split(class engine.Class, value []byte) (fields, data []byte, err error) {
	if class == engine.Sums {
		return value, nil, nil
	}
	n, size := binary.Uvarint(value)
	if size <= 0 || n > uint64(len(value)-size) {
		return nil, nil, errDamaged
	}
	return value[size:][:n], value[size:][n:], nil
}

// changed makes the value of a row of Docs or Once after a change; old is nil if there is none.
func (s *scratch) changed(old []byte, c *engine.Change) error {
	var data []byte
	s.change = s.change.of(c)
	if s.terms = append(s.terms[:0], s.change...); old != nil {
		fields, before, err := split(engine.Docs, old)
		if err == nil {
			err = s.terms.merge(fields, true)
		}
		if err != nil {
			return err
		}
		data = before
	}
	if c.Data != nil {
		data = c.Data
	}
	s.fields = s.terms.append(s.fields[:0], true)
	s.value = append(binary.AppendUvarint(s.value[:0], uint64(len(s.fields))), s.fields...)
	s.value = append(s.value, data...)
	return nil
}

// fill makes a row of a value and the fields that were asked for. The row borrows value.
func fill(r *engine.Row, class engine.Class, value []byte, ask []engine.FieldID, to []engine.Field) []engine.Field {
	r.Exists, r.Fields, r.Data, r.Bad = true, nil, nil, ""
	if len(ask) == 0 {
		return to
	}
	begin := len(to)
	fields, data, err := split(class, value)
	all := slices.Contains(ask, engine.All)
	for len(fields) > 0 && err == nil {
		var t term
		if t, fields, err = nextTerm(fields); err == nil && (all || slices.Contains(ask, t.id)) && t.value() != (engine.Int{}) {
			to = append(to, engine.Field{ID: t.id, Value: t.value()})
		}
	}
	if err != nil {
		r.Bad = err.Error()
		return to[:begin]
	}
	if all || slices.Contains(ask, engine.Data) {
		r.Data = data
	}
	r.Fields = to[begin:len(to):len(to)]
	return to
}
