package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
)

// watchEvery is how often a Watch reads its counters. A guess: people see no change sooner.
const watchEvery = 100 * time.Millisecond

// Total returns the total of a counter, with the moment that it is of. A counter that nobody has
// incremented has 0 and does not exist.
func (db *DB) Total(ctx context.Context, counter string) (reader.Total, error) {
	totals, err := db.Totals(ctx, counter)
	if err != nil {
		return reader.Total{}, err
	}
	return totals[0], nil
}

// Totals returns the totals of counters in the order asked, all of one moment that is not before the
// call. With an error that matches countmill.ErrOverflow come totals too: a total that does not fit 64 bits has Overflow.
func (db *DB) Totals(ctx context.Context, counters ...string) ([]reader.Total, error) {
	totals, err := db.reader.Totals(ctx, counters, 0)
	return totals, db.ended(err)
}

// ended is the error of a read. A read that the end of the DB broke off matches ErrClosed.
func (db *DB) ended(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-db.done:
		return fmt.Errorf("%w: the counters in %s: %w", countmill.ErrClosed, db.dir, err)
	default:
		return err
	}
}

// List returns the totals of all counters whose names begin with prefix, in the byte order of their
// names, page by page: pages are of different moments. It ends with the first error. A counter whose
// total does not fit 64 bits comes with an error that matches countmill.ErrOverflow, and the list
// goes on.
func (db *DB) List(ctx context.Context, prefix string) iter.Seq2[reader.Total, error] {
	return func(yield func(reader.Total, error) bool) {
		for after := ""; ; {
			page, err := db.reader.List(ctx, prefix, after, reader.MaxPage)
			if err != nil {
				yield(reader.Total{}, db.ended(err))
				return
			}
			for _, t := range page.Totals {
				if !yield(t, nil) {
					return
				}
			}
			for _, name := range page.Overflowed {
				if !yield(reader.Total{Counter: name, Exists: true}, countmill.ErrOverflow) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}

// Watch returns the totals of the counters at once, and again whenever one of them has changed. It
// reads them ten times a second. A slow caller gets the newest totals, not every change. It ends when
// ctx ends; with an error that matches countmill.ErrClosed when the DB ends; and with any error that
// a repeat cannot help. After an error that matches countmill.ErrUnavailable it goes on if the caller
// does.
func (db *DB) Watch(ctx context.Context, counters ...string) iter.Seq2[[]reader.Total, error] {
	return func(yield func([]reader.Total, error) bool) {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for last := []reader.Total(nil); ; {
			totals, err := db.Totals(ctx, counters...)
			if ctx.Err() != nil {
				return
			}
			if err != nil && (!yield(nil, err) || !mayPass(err)) {
				return
			}
			if err == nil && (last == nil || !slices.EqualFunc(last, totals, same)) {
				last = totals
				if !yield(totals, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-db.done:
				yield(nil, fmt.Errorf("%w: the counters in %s", countmill.ErrClosed, db.dir))
				return
			case <-tick.C:
			}
		}
	}
}

// same reports whether a watcher would see no change.
func same(a, b reader.Total) bool {
	return a.Total == b.Total && a.Exists == b.Exists && a.Shards == b.Shards
}

// mayPass reports whether a later read may succeed.
func mayPass(err error) bool {
	return errors.Is(err, countmill.ErrUnavailable) && !errors.Is(err, countmill.ErrClosed)
}
