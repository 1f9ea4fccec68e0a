package rows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/store/engine"
)

// A table has the rows of a kind.
type table struct {
	kind    *engine.Kind
	name    string   // with its schema, quoted
	key     []string // the columns of the key
	columns []column // the fields that are not open
	side    *table   // a row for each open field, and its number behind the key; nil if the kind has none
}

// A column is a field. high is empty for a narrow one.
type column struct {
	id        engine.FieldID
	low, high string
}

func quoted(names ...string) string { return pgx.Identifier(names).Sanitize() }

func tables(schema string, kinds engine.Kinds) (all []*table) {
	for i := range kinds {
		kind := &kinds[i]
		t := &table{kind: kind, name: quoted(schema, kind.Name)}
		if kind.Places {
			t.key = append(t.key, "place")
		}
		t.key = append(t.key, "name")
		if kind.Parts {
			t.key = append(t.key, "part")
		}
		for _, spec := range kind.Fields {
			c := column{id: spec.ID, low: quoted("f_" + spec.Name)}
			if spec.Wide {
				c.high = quoted("f_" + spec.Name + "_high")
			}
			if !spec.Open {
				t.columns = append(t.columns, c)
			} else if t.side == nil {
				of := engine.Kind{Name: kind.Name + "_open", Class: engine.Sums, Places: kind.Places, Parts: kind.Parts, Binary: kind.Binary}
				t.side = &table{kind: &of, name: quoted(schema, of.Name), key: append(slices.Clone(t.key), "field"), columns: []column{{low: "low", high: "high"}}}
			}
		}
		all = append(all, t)
	}
	return all
}

// definitions are the columns with their types, but for those of the key.
func (t *table) definitions() (names, types []string) {
	add := func(name, of string) { names, types = append(names, name), append(types, of) }
	for _, c := range t.columns {
		add(c.low, "bigint not null default 0")
		if c.high != "" {
			add(c.high, "bigint not null default 0")
		}
	}
	if t.kind.Class != engine.Sums {
		add("data", "bytea")
	}
	add("op", "bigint")
	return names, types
}

// create makes the table, and adds missing columns and indexes.
func (t *table) create() (sql []string) {
	key := []string{}
	for _, k := range t.key {
		of := map[string]string{"place": "bigint", "name": `text collate "C"`, "part": "integer", "field": "bigint"}[k]
		if k == "name" && t.kind.Binary {
			of = "bytea"
		}
		key = append(key, k+" "+of+" not null")
	}
	// Rows of Once never change. Free space in the others' pages keeps updates out of the indexes.
	fill := 80
	if t.kind.Class == engine.Once {
		fill = 100
	}
	sql = append(sql, fmt.Sprintf("create table if not exists %s (%s, primary key (%s)) with (fillfactor = %d)",
		t.name, strings.Join(key, ", "), strings.Join(t.key, ", "), fill))
	names, types := t.definitions()
	for i := range names {
		sql = append(sql, fmt.Sprintf("alter table %s add column if not exists %s %s", t.name, names[i], types[i]))
	}
	if t.kind.ByName && t.kind.Places {
		sql = append(sql, fmt.Sprintf("create index if not exists %s on %s (%s)", quoted(t.kind.Name+"_name"), t.name, strings.Join(t.order(true), ", ")))
	}
	switch {
	case t.kind.Due == 0:
	case t.kind.Class == engine.Once: // in the order of time, as they come
		sql = append(sql, fmt.Sprintf("create index if not exists %s on %s using brin (%s) with (pages_per_range = 32, autosummarize = on)", quoted(t.kind.Name+"_due"), t.name, t.due()))
	default:
		sql = append(sql, fmt.Sprintf("create index if not exists %s on %s (%s) where %[3]s <> 0", quoted(t.kind.Name+"_due"), t.name, t.due()))
	}
	return sql
}

// Indexes are the names of the indexes of a kind beside its primary key.
func Indexes(kind *engine.Kind) (names []string) {
	if kind.ByName && kind.Places {
		names = append(names, kind.Name+"_name")
	}
	if kind.Due != 0 {
		names = append(names, kind.Name+"_due")
	}
	return names
}

// settings reports whether commits may require rows of the table. Its key is a name.
func (t *table) settings() bool {
	k := t.kind
	return k.Class == engine.Docs && len(t.key) == 1 && !k.Binary && !k.ByName && k.Due == 0
}

func (t *table) due() string { return t.columns[t.column(t.kind.Due)].low }

// column returns the position of a field, or -1 for an open one, and -2 if there is no such field.
func (t *table) column(id engine.FieldID) int {
	for i := range t.columns {
		if t.columns[i].id == id {
			return i
		}
	}
	if spec := t.kind.Field(id); spec == nil || !spec.Open {
		return -2
	}
	return -1
}

// order are the columns of an order of keys.
func (t *table) order(byName bool) []string {
	order := slices.Clone(t.key)
	if byName && t.kind.Places {
		order[0], order[1] = order[1], order[0]
	}
	return order
}

// signed maps places to bigint in their order.
func signed(place uint64) int64 { return int64(place ^ 1<<63) }

// keyArrays are parameters for keys.
func (t *table) keyArrays() (arrays []*array) {
	for _, k := range t.key {
		switch {
		case k != "name":
			arrays = append(arrays, newArray(oidInt8s))
		case t.kind.Binary:
			arrays = append(arrays, newArray(oidBytes))
		default:
			arrays = append(arrays, newArray(oidTexts))
		}
	}
	return arrays
}

// appendKey leaves out the field of a side table.
func (t *table) appendKey(arrays []*array, key *engine.Key) {
	for i, k := range t.key {
		switch k {
		case "place":
			arrays[i].int64(signed(key.Place))
		case "name":
			arrays[i].string(key.Name)
		case "part":
			arrays[i].int64(int64(key.Part))
		}
	}
}

// keyParam is a column of a key as a parameter.
func (t *table) keyParam(column string, key *engine.Key) param {
	switch {
	case column == "place":
		return number(signed(key.Place))
	case column == "part":
		return number(int64(key.Part))
	case t.kind.Binary:
		return param{oidBytea, []byte(key.Name)}
	}
	// No text has bytes below the space, and PostgreSQL takes no zero.
	return text(strings.ReplaceAll(key.Name, "\x00", "\x01"))
}

// scanKey is the opposite of keyParam.
func (t *table) scanKey(key *engine.Key, values [][]byte) {
	for i, k := range t.key {
		switch k {
		case "place":
			key.Place = uint64(int64Of(values[i])) ^ 1<<63
		case "name":
			key.Name = string(values[i])
		case "part":
			key.Part = uint32(int64Of(values[i]))
		}
	}
}

// from is a table of rows from arrays, the first of which are keys, with ord, their order from 1.
func (t *table) from(more ...string) string {
	names := slices.Concat(t.key, more)
	args := make([]string, len(names))
	for i := range args {
		args[i] = arg(i + 1)
	}
	return fmt.Sprintf("unnest(%s) with ordinality as s(%s, ord)", strings.Join(args, ", "), strings.Join(names, ", "))
}

// same says that rows of the table, t, have the keys of from, s.
func (t *table) same() string {
	terms := make([]string, len(t.key))
	for i, k := range t.key {
		terms[i] = fmt.Sprintf("t.%s = s.%[1]s", k)
	}
	return strings.Join(terms, " and ")
}

// A selection is the columns of a read.
type selection struct {
	t    *table
	sql  []string
	read []func(row *engine.Row, values [][]byte) error // of a column, and those behind it
}

func (t *table) selects(fields []engine.FieldID) *selection {
	s := &selection{t: t}
	all := slices.Contains(fields, engine.All)
	add := func(read func(row *engine.Row, values [][]byte) error, columns ...string) {
		at := len(s.sql)
		s.sql = append(s.sql, columns...)
		s.read = append(s.read, func(row *engine.Row, values [][]byte) error { return read(row, values[at:]) })
	}
	for _, c := range t.columns {
		switch id := c.id; {
		case !all && !slices.Contains(fields, id):
		case c.high == "":
			add(func(row *engine.Row, v [][]byte) error { return field(row, id, engine.IntOf(int64Of(v[0]))) }, c.low)
		default:
			add(func(row *engine.Row, v [][]byte) error {
				return field(row, id, engine.Join(int64Of(v[0]), int64Of(v[1])))
			}, c.low, c.high)
		}
	}
	if sql := t.openFields(fields, all); sql != "" {
		add(func(row *engine.Row, v [][]byte) error { return readOpen(v[0], row) }, sql)
	}
	if t.kind.Class != engine.Sums && (all || slices.Contains(fields, engine.Data)) {
		add(func(row *engine.Row, v [][]byte) error { row.Data = slices.Clone(v[0]); return nil }, "data")
	}
	return s
}

// openFields is a column with open fields as text: some, or all.
func (t *table) openFields(fields []engine.FieldID, all bool) string {
	var some []string
	for _, id := range fields {
		if id != engine.Data && t.column(id) == -1 {
			some = append(some, strconv.FormatUint(uint64(id), 10))
		}
	}
	if t.side == nil || !all && some == nil {
		return ""
	}
	where := strings.ReplaceAll(t.same(), " s.", " o.")
	if !all {
		where += " and o.field in (" + strings.Join(some, ", ") + ")"
	}
	return fmt.Sprintf("(select string_agg(o.field || ' ' || o.low || ' ' || o.high, ' ') from %s o where %s)", t.side.name, where)
}

func field(row *engine.Row, id engine.FieldID, value engine.Int) error {
	if value != (engine.Int{}) {
		row.Fields = append(row.Fields, engine.Field{ID: id, Value: value})
	}
	return nil
}

// scan fills a row.
func (s *selection) scan(row *engine.Row, values [][]byte) {
	row.Exists = true
	for _, read := range s.read {
		if err := read(row, values); err != nil {
			*row = engine.Row{Key: row.Key, Exists: true, Bad: err.Error()}
			return
		}
	}
}

// list returns columns of t and subqueries, with a comma before each.
func list(columns ...string) (sql string) {
	for _, c := range columns {
		if !strings.HasPrefix(c, "(") {
			c = "t." + c
		}
		sql += ", " + c
	}
	return sql
}

// readOpen appends open fields to a row: three numbers for each, its ID and the two of engine.Join.
func readOpen(value []byte, row *engine.Row) error {
	for numbers := strings.Fields(string(value)); len(numbers) > 0; numbers = numbers[3:] {
		id, err := strconv.ParseUint(numbers[0], 10, 32)
		low, lowErr := strconv.ParseInt(numbers[1], 10, 64)
		high, highErr := strconv.ParseInt(numbers[2], 10, 64)
		if err := errors.Join(err, lowErr, highErr); err != nil {
			return err
		}
		_ = field(row, engine.FieldID(id), engine.Join(low, high))
	}
	// An open field may be before one with a column.
	slices.SortFunc(row.Fields, func(a, b engine.Field) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}
