package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
)

// An ErasedPage is the result of one call of Erase.
type ErasedPage struct {
	Erased int // entries, as pages have them
	Others int // opening balances and corrections of the counter
	// Next is the after of the next call; empty at the end.
	Next string
	// SettledUntil is the time up to which entries were erased. Later ones are not.
	SettledUntil time.Time
}

// Erase removes the name and the deltas of a counter from at most 2,000 records after a key; empty for the
// oldest one. Repeat Erase until Next is
// empty. Errors match countmill.ErrInvalid, countmill.ErrUnavailable or countmill.ErrOutcomeUnknown; you may repeat
// the call.
func (j *Journal) Erase(ctx context.Context, counter, after string) (done ErasedPage, err error) {
	if err := countmill.CheckCounter(counter); err != nil {
		return done, err
	}
	q := store.JournalQuery{Limit: scanPage}
	if after != "" {
		place, err := store.ParseJournalPlace("after", after)
		if err != nil {
			return done, err
		}
		q.From = place.Next()
	}
	defer func() {
		if err != nil && done.Erased+done.Others > 0 {
			err = changing("erasing", err, true)
		}
	}()
	for scanned := 0; ; {
		page, err := j.Records(ctx, q)
		if err != nil {
			return done, err
		}
		done.SettledUntil = page.SettledUntil
		for i := range page.Records {
			n, kind, err := j.eraseRecord(ctx, &page.Records[i], counter)
			if err != nil {
				return done, err
			}
			if kind == journal.AppliedKind {
				done.Erased += n
			} else {
				done.Others += n
			}
		}
		n := len(page.Records)
		if !page.More || n == 0 {
			return done, nil
		}
		last := page.Records[n-1].Place()
		if q.From = last.Next(); scanned+n >= maxScanned {
			done.Next = last.String()
			return done, nil
		}
		scanned += n
	}
}

// eraseRecord repeats the change if another one was first. It returns how much of the record it has erased, and the record's
// kind.
func (j *Journal) eraseRecord(ctx context.Context, r *store.JournalRecord, counter string) (erased int, kind journal.Kind, err error) {
	for range 10 {
		next, rows, kind, err := erasedOf(r, counter)
		if err != nil || len(rows) == 0 {
			return 0, kind, err
		}
		err = j.replace(ctx, r, next, rows)
		if err == nil {
			return len(rows), kind, nil
		}
		if !errors.Is(err, store.ErrChanged) {
			return 0, kind, fmt.Errorf("%w: erasing in record %s: %w", countmill.ErrOutcomeUnknown, r.Place(), err)
		}
		page, err := j.Records(ctx, store.JournalQuery{From: r.Place(), To: r.Place().Next(), Limit: 1})
		if err != nil || len(page.Records) == 0 {
			return 0, kind, err // it is gone
		}
		r = &page.Records[0]
	}
	return 0, 0, fmt.Errorf("%w: record %s changes all the time", countmill.ErrUnavailable, r.Place())
}

func (j *Journal) replace(ctx context.Context, old, next *store.JournalRecord, rows []store.JournalRow) error {
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	return j.store.ReplaceRecord(ctx, old, next, rows)
}

// erasedOf returns the record without the counter, and the rows to remove; none if the record does not have the
// counter.
func erasedOf(r *store.JournalRecord, counter string) (next *store.JournalRecord, rows []store.JournalRow, kind journal.Kind, err error) {
	content, err := journal.Decode(r.Data)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("%w: record %s: %w", countmill.ErrUnavailable, r.Place(), err)
	}
	content.Entries(r.Key, func(l journal.Line) {
		if l.Entry.Counter == counter {
			rows = append(rows, store.JournalRow{Counter: counter, Place: l.Place})
			*l.Entry = journal.Entry{Erased: true}
		}
	})
	changed := *r
	changed.Data = content.Encode(nil)
	return &changed, rows, content.Kind, nil
}
