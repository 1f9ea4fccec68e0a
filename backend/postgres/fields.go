package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/countmill/countmill/store/engine"
)

// Open fields are members of a jsonb object by their numbers. jsonb has its keys by length, so numbers rise. A member is a number; in a
// row that an Insert has made it may be text, or null for 0.

// appendOpen appends a member: a number to add, text to set, null to unset.
func appendOpen(open []byte, f engine.Field, op int64) []byte {
	if len(open) == 0 {
		open = append(open, '{')
	} else {
		open = append(open, ',')
	}
	open = strconv.AppendUint(append(open, '"'), uint64(f.ID), 10)
	open = append(open, `":`...)
	switch {
	case op == opSet && f.Value == (engine.Int{}):
		return append(open, "null"...)
	case op == opSet:
		return append(open, `"`+f.Value.String()+`"`...)
	}
	return append(open, f.Value.String()...)
}

// mergeOpen is the object of a row after a change. It looks only at the members of the change.
const mergeOpen = `case when excluded.open is null then t.open else (
	select jsonb_strip_nulls(coalesce(t.open, '{}') || jsonb_object_agg(key, nullif((excluded.open ->> key)::numeric +
		case jsonb_typeof(value) when 'number' then coalesce((t.open ->> key)::numeric, 0) else 0 end, 0)))
	from jsonb_each(excluded.open)) end`

// readOpen appends the members of an object to a row.
func readOpen(value []byte, row *engine.Row, has func(engine.FieldID) bool) error {
	if len(value) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(value[1:]))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		id, err := strconv.ParseUint(fmt.Sprint(name), 10, 32)
		if err != nil {
			return err
		}
		member, err := d.Token()
		if err != nil {
			return err
		}
		if member == nil || !has(engine.FieldID(id)) {
			continue
		}
		n, err := parse(fmt.Sprint(member))
		if err != nil {
			return err
		}
		_ = field(row, engine.FieldID(id), n)
	}
	// An open field may be before one with a column.
	slices.SortFunc(row.Fields, func(a, b engine.Field) int { return int(int64(a.ID) - int64(b.ID)) })
	return nil
}

func parse(s string) (engine.Int, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return engine.IntOf(n), nil
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.BitLen() > 127 {
		return engine.Int{}, fmt.Errorf("the number %q", s)
	}
	high := new(big.Int).Rsh(n, 64) // rounds down
	low := new(big.Int).Sub(n, new(big.Int).Lsh(high, 64))
	return engine.Int{Hi: high.Int64(), Lo: low.Uint64()}, nil
}
