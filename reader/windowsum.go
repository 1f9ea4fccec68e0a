package reader

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader/board"
)

// seriesAtOnce is how many series of windows a reader reads at once from a store that charges. It is behind a network,
// and one after the other would take long. A series of a month can have megabytes.
const seriesAtOnce = 16

// ranked returns the sums of counters that were read, and leaves out those without one. It notes those whose sum does not fit 64 bits.
func (br *boardReading) ranked(ctx context.Context, of []*partial) ([]board.Ranked, error) {
	sums, some, over := make([]int64, len(of)), make([]bool, len(of)), make([]bool, len(of))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1)
	if br.board.Query.Rate > 0 {
		group.SetLimit(seriesAtOnce)
	}
	for i, t := range of {
		if !br.query.Has(t.counter) {
			continue
		}
		if br.query.To == 0 {
			total, err := t.total()
			sums[i], some[i], over[i] = total.Total, err == nil && total.Exists, err != nil
			continue
		}
		group.Go(func() (err error) {
			sums[i], some[i], err = br.inWindow(ctx, t)
			if over[i] = errors.Is(err, countmill.ErrOverflow); over[i] {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	found := make([]board.Ranked, 0, len(of))
	for i, t := range of {
		if over[i] {
			br.overflowed = append(br.overflowed, t.counter)
		}
		if some[i] {
			found = append(found, board.Ranked{Counter: t.counter, Sum: sums[i]})
		}
	}
	return found, nil
}

// inWindow returns the sum of a counter in the window; ok is false if it has none. The error may be an *OverflowError.
func (br *boardReading) inWindow(ctx context.Context, t *partial) (sum int64, ok bool, err error) {
	if !t.exists || t.deleted() {
		return 0, false, nil
	}
	if br.board.Query.Rate > 0 {
		select {
		case br.r.boards.series <- struct{}{}:
			defer func() { <-br.r.boards.series }()
		case <-ctx.Done():
			return 0, false, br.r.storeError(ctx, "waiting to read a series", ctx.Err())
		}
	}
	s := &seriesReading{r: br.r, view: br.view}
	buckets, err := s.buckets(ctx, t.counter, br.query.From.Time(), br.query.To.Time())
	if err != nil {
		return 0, false, err
	}
	row := Row{Counter: t.counter, Time: br.query.From.Time(), End: br.query.To.Time()}
	err = sumRow(&row, buckets)
	return row.Value, err == nil && row.Value != 0, err
}
