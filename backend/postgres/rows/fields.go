package rows

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/countmill/countmill/store/engine"
)

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
