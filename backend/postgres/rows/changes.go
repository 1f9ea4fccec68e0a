package rows

import (
	"fmt"
	"iter"
	"strings"

	"github.com/countmill/countmill/store/engine"
)

// The operations of the column op, two bits a column.
const (
	opAdd int64 = iota // and no change, which adds 0
	opMax
	opSet
)

// rows are the rows of a statement, with a parameter for each column.
type rows struct {
	t       *table
	keys    []*array
	columns []operands
	data    *array
	op      *array
	open    *rows    // of the side table
	unset   []*array // open fields that are unset
}

// operands are those of a column.
type operands struct {
	low, high *array // nil if no row has one
	uses      [3]int // by operation
}

func (t *table) rows() *rows {
	r := &rows{t: t, keys: t.keyArrays(), columns: make([]operands, len(t.columns)), op: newArray(oidInt8s)}
	if t.side != nil {
		r.open, r.unset = t.side.rows(), t.side.keyArrays()
	}
	return r
}

func (r *rows) n() int { return r.keys[0].n }

// add encodes a change.
func (r *rows) add(c *engine.Change) error {
	n, mask := r.n(), int64(0)
	r.t.appendKey(r.keys, &c.Key)
	one := func(f engine.Field, op int64) error {
		if f.Value == (engine.Int{}) && op == opAdd {
			return nil
		}
		at := r.t.column(f.ID)
		low, high, fits := f.Value.Split()
		if at >= 0 && r.t.columns[at].high == "" {
			high = 0
			low, fits = f.Value.Int64()
		}
		switch {
		case at == -2:
			return fmt.Errorf("%w: %s has no field %d", engine.ErrRefused, r.t.kind.Name, f.ID)
		case !fits:
			return fmt.Errorf("%w: %s is too large for a field", engine.ErrRefused, f.Value)
		case at == -1:
			r.addOpen(&c.Key, f, op)
			return nil
		}
		r.put(at, n, low, high, op)
		mask |= op << (2 * at)
		return nil
	}
	var err error
	each := func(list []engine.Field, op int64) {
		for i := 0; i < len(list) && err == nil; i++ {
			err = one(list[i], op)
		}
	}
	for i := 0; i < len(c.Unset) && err == nil; i++ {
		err = one(engine.Field{ID: c.Unset[i]}, opSet)
	}
	each(c.Set, opSet)
	each(c.Max, opMax)
	each(c.Add, opAdd)
	if c.Data != nil {
		if r.data == nil {
			r.data = newArray(oidBytes)
		}
		r.data.fill(n)
		r.data.string(string(c.Data))
	}
	r.mask(mask)
	return err
}

func (r *rows) mask(op int64) {
	if op == 0 {
		r.op.null()
	} else {
		r.op.int64(op)
	}
}

// put encodes an operand of the row n.
func (r *rows) put(column, n int, low, high, op int64) {
	o := &r.columns[column]
	o.uses[op]++
	put(&o.low, n, low)
	if high != 0 || op == opSet && r.t.columns[column].high != "" {
		put(&o.high, n, high)
	}
}

// addOpen encodes an open field.
func (r *rows) addOpen(key *engine.Key, f engine.Field, op int64) {
	keys, last := r.open.keys, len(r.unset)-1
	if op == opSet && f.Value == (engine.Int{}) {
		keys = r.unset
	}
	n := keys[0].n
	r.t.appendKey(keys, key)
	if keys[last].int64(int64(f.ID)); op == opSet && f.Value == (engine.Int{}) {
		return
	}
	low, high, _ := f.Value.Split()
	r.open.put(0, n, low, high, op)
	r.open.mask(op)
}

func put(a **array, n int, value int64) {
	if *a == nil {
		*a = newArray(oidInt8s)
	}
	(*a).fill(n)
	(*a).int64(value)
}

// write adds the statement that inserts the rows, or changes existing ones.
func (r *rows) write(b *batch, meant error, upsert bool) {
	t, n := r.t, r.n()
	if n == 0 {
		return
	}
	names, arrays := append([]string(nil), t.key...), append([]*array(nil), r.keys...)
	var sets []string
	mixed := false
	use := func(name string, a *array, set string) {
		a.fill(n)
		names, arrays, sets = append(names, name), append(arrays, a), append(sets, name+" = "+set)
	}
	for i := range r.columns {
		for half, a := range []*array{r.columns[i].low, r.columns[i].high} {
			if a == nil {
				continue
			}
			name := []string{t.columns[i].low, t.columns[i].high}[half]
			switch uses := r.columns[i].uses; {
			case uses[opMax]+uses[opSet] == 0:
				use(name, a, fmt.Sprintf("t.%s + excluded.%[1]s", name))
			case uses[opMax] == n:
				use(name, a, fmt.Sprintf("greatest(t.%s, excluded.%[1]s)", name))
			case uses[opSet] == n:
				use(name, a, "excluded."+name)
			default:
				mixed = true
				use(name, a, fmt.Sprintf("case coalesce(excluded.op, 0) >> %d & 3 when 0 then t.%s + excluded.%[2]s when 1 then greatest(t.%[2]s, excluded.%[2]s) else excluded.%[2]s end", 2*i, name))
			}
		}
	}
	if r.data != nil {
		use("data", r.data, "coalesce(excluded.data, t.data)")
	}
	if mixed && upsert {
		use("op", r.op, "null")
	}
	args := make([]string, len(names))
	for i := range args {
		args[i] = arg(i + 1)
	}
	sql := fmt.Sprintf("insert into %s as t (%s) select * from unnest(%s)", t.name, strings.Join(names, ", "), strings.Join(args, ", "))
	if upsert {
		if len(sets) == 0 { // a row that exists stays as it is, and is locked
			sets = []string{"op = null"}
		}
		sql += fmt.Sprintf(" on conflict (%s) do update set %s", strings.Join(t.key, ", "), strings.Join(sets, ", "))
	}
	b.want(meant, nil, sql, params(arrays)...)
	if r.open != nil { // under the lock of the row
		r.open.write(b, nil, true)
		t.side.delete(b, r.unset)
	}
}

// delete adds a statement that deletes rows by their keys.
func (t *table) delete(b *batch, keys []*array) {
	if keys[0].n > 0 {
		b.do(fmt.Sprintf("delete from %s t using %s where %s", t.name, t.from(), t.same()), params(keys)...)
	}
}

// exclude lets no commit require rows of the table meanwhile, if any may. The row alone would never be free: commits that require it share its lock.
func (t *table) exclude(b *batch) bool {
	if !t.settings() {
		return false
	}
	b.do("lock table " + t.name + " in exclusive mode")
	return true
}

// A work is the changes of one kind.
type work struct {
	t                *table
	inserts, upserts *rows
	deletes          []*array
	locks            []*array // keys that are changed or deleted if they exist
	must             *array   // 1 for a lock whose row has to exist
	updates          int
}

// change adds the statements of changes, which come by their keys.
func (e *Engine) change(b *batch, changes iter.Seq[*engine.Change]) (err error) {
	var w *work
	n := 0
	for c := range changes {
		if n++; n > commitRows {
			return fmt.Errorf("%w: a commit of more than %d rows", engine.ErrRefused, commitRows)
		}
		if int(c.Key.Kind) >= len(e.tables) {
			return fmt.Errorf("%w: no kind %d", engine.ErrRefused, c.Key.Kind)
		}
		if t := e.tables[c.Key.Kind]; w == nil || w.t != t {
			w.write(b)
			w = &work{t: t, inserts: t.rows(), upserts: t.rows(), deletes: t.keyArrays(), locks: t.keyArrays(), must: newArray(oidInt8s)}
		}
		if err := w.add(c); err != nil {
			return err
		}
	}
	w.write(b)
	return nil
}

func (w *work) add(c *engine.Change) error {
	switch c.Op {
	case engine.Insert:
		return w.inserts.add(c)
	case engine.Upsert:
		return w.upserts.add(c)
	}
	w.t.appendKey(w.locks, &c.Key)
	if c.Op == engine.Delete {
		w.must.int64(0)
		w.t.appendKey(w.deletes, &c.Key)
		return nil
	}
	w.must.int64(1)
	w.updates++
	return w.upserts.add(c)
}

func (w *work) write(b *batch) {
	if w == nil {
		return
	}
	w.t.exclude(b)
	if w.must.n > 0 {
		b.want(engine.ErrMissing, nil, fmt.Sprintf("select 1 / (count(*) filter (where s.must = 1) = %s)::int from %s, lateral (select from %s t where %s for no key update) l",
			arg(len(w.locks)+2), w.t.from("must"), w.t.name, w.t.same()), params(append(w.locks, w.must), number(int64(w.updates)))...)
	}
	w.inserts.write(b, engine.ErrExists, false)
	w.upserts.write(b, nil, true)
	if w.t.side != nil && w.deletes[0].n > 0 {
		// An absent row is locked too: otherwise a new row would lose its open fields.
		locked := w.t.rows()
		locked.keys = w.deletes
		locked.write(b, nil, true)
		b.do(fmt.Sprintf("delete from %s t using %s where %s", w.t.side.name, w.t.from(), w.t.same()), params(w.deletes)...)
	}
	w.t.delete(b, w.deletes)
}
