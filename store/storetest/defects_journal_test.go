package storetest_test

import (
	"context"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// journaling keeps a wrong journal.
type journaling struct {
	*fakestore.Store
	fold    func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error)
	moment  func(s *fakestore.Store, now time.Time) (time.Time, func())
	records func(ctx context.Context, s *fakestore.Store, q store.JournalQuery) (store.JournalPage, error)
	rows    func(ctx context.Context, s *fakestore.Store, counter string, q store.JournalQuery) (store.JournalPage, error)
	replace func(ctx context.Context, s *fakestore.Store, old, next *store.JournalRecord, rows []store.JournalRow) error
	sweep   func(ctx context.Context, s *fakestore.Store) error
}

func (j *journaling) below() *fakestore.Store { return j.Store }

func journals(j journaling) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store {
		own := j
		own.Store = s
		return &own
	}
}

func (j *journaling) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if j.fold == nil {
		return j.Store.Fold(ctx, c)
	}
	return j.fold(ctx, j.Store, c)
}

func (j *journaling) JournalMoment(now time.Time) (time.Time, func()) {
	if j.moment == nil {
		return j.Store.JournalMoment(now)
	}
	return j.moment(j.Store, now)
}

func (j *journaling) JournalRecords(ctx context.Context, q store.JournalQuery) (store.JournalPage, error) {
	if j.records == nil {
		return j.Store.JournalRecords(ctx, q)
	}
	return j.records(ctx, j.Store, q)
}

func (j *journaling) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (store.JournalPage, error) {
	if j.rows == nil {
		return j.Store.JournalRows(ctx, counter, q)
	}
	return j.rows(ctx, j.Store, counter, q)
}

func (j *journaling) ReplaceRecord(ctx context.Context, old, next *store.JournalRecord, rows []store.JournalRow) error {
	if j.replace == nil {
		return j.Store.ReplaceRecord(ctx, old, next, rows)
	}
	return j.replace(ctx, j.Store, old, next, rows)
}

func (j *journaling) SweepJournal(ctx context.Context) error {
	if j.sweep == nil {
		return j.Store.SweepJournal(ctx)
	}
	return j.sweep(ctx, j.Store)
}

// recordsFirst writes the records before the commit, which may be refused.
func recordsFirst(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	s.WriteRecords(c)
	left := *c
	left.Records, left.Rows = nil, nil
	return s.Fold(ctx, &left)
}

// recordsBefore writes the records a moment before the sums.
func recordsBefore(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	if len(c.Adds) == 0 {
		return s.Fold(ctx, c)
	}
	s.WriteRecords(c)
	time.Sleep(time.Millisecond)
	left := *c
	left.Records, left.Rows = nil, nil
	return s.Fold(ctx, &left)
}

// countsCorrections adds the corrected buckets to totals.
func countsCorrections(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	if c.Correction {
		moved := *c
		moved.Adds = append([]store.ShardDelta(nil), c.Adds...)
		for _, b := range c.Buckets {
			moved.Adds[b.Add].Delta += b.Delta
		}
		c = &moved
	}
	return s.Fold(ctx, c)
}

// momentsOver ends each attempt before its commit.
func momentsOver(s *fakestore.Store, now time.Time) (time.Time, func()) {
	at, done := s.JournalMoment(now)
	done()
	return at, func() {}
}

func alwaysFirst(ctx context.Context, s *fakestore.Store, q store.JournalQuery) (store.JournalPage, error) {
	q.Last = false
	return s.JournalRecords(ctx, q)
}

func rowsOfAny(ctx context.Context, s *fakestore.Store, counter string, q store.JournalQuery) (store.JournalPage, error) {
	if counter == "A" {
		counter = "a"
	}
	return s.JournalRows(ctx, counter, q)
}

func replacesBlindly(ctx context.Context, s *fakestore.Store, old, next *store.JournalRecord, rows []store.JournalRow) error {
	page, err := s.JournalRecords(ctx, store.JournalQuery{From: old.Place(), To: old.Place().Next(), Limit: 1})
	if err != nil || len(page.Records) == 0 {
		return store.ErrChanged
	}
	return s.ReplaceRecord(ctx, &page.Records[0], next, rows)
}

func keepsRows(ctx context.Context, s *fakestore.Store, old, next *store.JournalRecord, _ []store.JournalRow) error {
	return s.ReplaceRecord(ctx, old, next, nil)
}

func neverSweeps(context.Context, *fakestore.Store) error { return nil }
