package reader

import (
	"context"

	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
)

// ranked returns the sums of counters that were read, and leaves out those without one. It notes those whose sum does not fit 64 bits.
func (br *boardReading) ranked(ctx context.Context, of []*partial) (found []board.Ranked, err error) {
	var windowed []*partial
	var rows []Row
	for _, t := range of {
		total, err := t.total()
		switch {
		case !br.query.Has(t.counter):
		case br.query.To > 0 && t.exists && !t.deleted():
			windowed = append(windowed, t)
			rows = append(rows, Row{Counter: t.counter, Time: br.query.From.Time(), End: br.query.To.Time()})
		case br.query.To == 0 && (total.Exists || err != nil):
			rows = append(rows, Row{Counter: t.counter, Value: total.Total, Overflow: err != nil})
		}
	}
	err = br.r.eachSeries(ctx, br.view, windowed, br.query.From.Time(), br.query.To.Time(), func(i int, buckets []store.Bucket) {
		sumRow(&rows[i], buckets)
	})
	for _, row := range rows {
		if row.Overflow {
			br.overflowed = append(br.overflowed, row.Counter)
		} else if row.Value != 0 || br.query.To == 0 {
			found = append(found, board.Ranked{Counter: row.Counter, Sum: row.Value})
		}
	}
	return found, err
}
