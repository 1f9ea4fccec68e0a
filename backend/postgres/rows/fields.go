package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/countmill/countmill/store/engine"
)

// readOpen appends open fields to a row: a jsonb object of numbers. Its keys are by length, so they rise.
func readOpen(value []byte, row *engine.Row) error {
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
