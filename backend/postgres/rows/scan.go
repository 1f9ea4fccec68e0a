package rows

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/countmill/countmill/store/engine"
)

// maxPage is the number of rows of a page of a scan. The first pages are smaller.
const maxPage = 2000

// A scan reads pages, each of which begins after the last key of the one before.
type scan struct {
	v      *view
	ctx    context.Context
	r      engine.Range
	s      *selection
	page   []engine.Row
	at     int
	size   int
	ended  bool
	err    error
	bounds []string
	args   []param
}

// Scan begins to read a range.
func (v *view) Scan(ctx context.Context, r engine.Range, fields ...engine.FieldID) engine.Rows {
	if int(r.Kind) >= len(v.e.tables) {
		return &scan{err: fmt.Errorf("%w: no kind %d", engine.ErrRefused, r.Kind)}
	}
	s := &scan{v: v, ctx: ctx, r: r, s: v.e.tables[r.Kind].selects(fields), size: 100}
	if r.Page > 0 {
		s.size = min(r.Page, maxPage)
	}
	return s
}

// Next returns the next row.
func (s *scan) Next() *engine.Row {
	if s.at == len(s.page) {
		if s.err != nil || s.ended {
			return nil
		}
		if s.err = s.read(); s.err != nil || len(s.page) == 0 {
			s.ended = true
			return nil
		}
	}
	s.at++
	return &s.page[s.at-1]
}

// read reads a page.
func (s *scan) read() error {
	t, kind := s.s.t, s.r.Kind
	order := t.order(s.r.ByName)
	s.bounds, s.args = nil, nil
	less, more, direction := " < ", " > ", ""
	if s.r.Reverse {
		direction = " desc"
	}
	from, after := s.r.From, s.r.After
	if len(s.page) > 0 && !s.r.Reverse {
		from, after = s.page[len(s.page)-1].Key, true
	}
	s.bound(order, map[bool]string{true: more, false: " >= "}[after], &from)
	if len(s.page) > 0 && s.r.Reverse {
		s.bound(order, less, &s.page[len(s.page)-1].Key)
	} else if s.r.To != (engine.Key{}) {
		s.bound(order, less, &s.r.To)
	}
	if s.r.Prefix != "" {
		s.bound([]string{"name"}, " >= ", &engine.Key{Name: s.r.Prefix})
		if next := t.kind.Following(s.r.Prefix); next != "" {
			s.bound([]string{"name"}, less, &engine.Key{Name: next})
		}
	}
	sql := fmt.Sprintf("select %s%s from %s t where %s order by %s limit %d", strings.Join(t.key, ", "), list(s.s.sql...), t.name,
		strings.Join(s.bounds, " and "), strings.Join(order, direction+", ")+direction, s.size)
	page, size := make([]engine.Row, 0, min(s.size, maxPage)), s.size
	err := s.v.ask(s.ctx, true, func(b *batch) {
		page = page[:0]
		b.want(nil, func(values [][]byte) error {
			row := engine.Row{Key: engine.Key{Kind: kind}}
			t.scanKey(&row.Key, values)
			s.s.scan(&row, values[len(t.key):])
			page = append(page, row)
			return nil
		}, sql, s.args...)
	})
	s.page, s.at, s.ended = page, 0, len(page) < size
	s.size = min(4*size, maxPage)
	return err
}

func (s *scan) bound(columns []string, operator string, key *engine.Key) {
	var holders []string
	for _, c := range columns {
		s.args = append(s.args, s.s.t.keyParam(c, key))
		holders = append(holders, arg(len(s.args)))
	}
	s.bounds = append(s.bounds, "("+strings.Join(columns, ", ")+")"+operator+"("+strings.Join(holders, ", ")+")")
}

// Err returns the error that ended the scan.
func (s *scan) Err() error { return s.err }

// Close releases the scan.
func (s *scan) Close() { s.page, s.at, s.ended = nil, 0, true }

// Due lists keys by their Due and then by their place, name and part.
func (e *Engine) Due(ctx context.Context, kind engine.KindID, before int64, after string, limit int) (keys []engine.Key, next string, err error) {
	t := e.tables[kind]
	columns := slices.Concat([]string{t.due()}, t.key)
	where, args := t.due()+" <> 0 and "+t.due()+" <= $1", []param{number(before)}
	if after != "" {
		due, key, err := parseDue(after)
		if err != nil {
			return nil, "", err
		}
		args = append(args, number(due))
		for _, c := range t.key {
			args = append(args, t.keyParam(c, &key))
		}
		holders := make([]string, len(columns))
		for i := range holders {
			holders[i] = arg(i + 2)
		}
		where += fmt.Sprintf(" and (%s) > (%s)", strings.Join(columns, ", "), strings.Join(holders, ", "))
	}
	v := &view{e: e, slots: e.views}
	defer v.Close()
	err = v.ask(ctx, false, func(b *batch) {
		keys = nil
		b.want(nil, func(values [][]byte) error {
			key := engine.Key{Kind: kind}
			t.scanKey(&key, values[1:])
			if keys = append(keys, key); len(keys) == limit {
				next = fmt.Sprintf("%d %d %d %s", int64Of(values[0]), key.Place, key.Part, key.Name)
			}
			return nil
		}, fmt.Sprintf("select %s from %s where %s order by %[1]s limit %[4]d", strings.Join(columns, ", "), t.name, where, limit), args...)
	})
	if err != nil {
		return nil, "", err
	}
	return keys, next, nil
}

// parseDue reads the next of a page.
func parseDue(after string) (due int64, key engine.Key, err error) {
	parts := strings.SplitN(after, " ", 4)
	if len(parts) == 4 {
		_, err = fmt.Sscan(strings.Join(parts[:3], " "), &due, &key.Place, &key.Part)
		key.Name = parts[3]
		return due, key, err
	}
	return 0, key, fmt.Errorf("%w: %q is no end of a page", engine.ErrRefused, after)
}
