package fakestore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

type rowKey struct {
	counter string
	place   store.JournalPlace
}

// A journal has the records and rows of commits.
type journal struct {
	records map[store.JournalKey]store.JournalRecord
	written map[store.JournalKey]time.Time // by commit time
	rows    map[rowKey]store.JournalRow
	open    map[time.Time]struct{} // moments of attempts, where the store uses the machine's clock
	settled time.Time              // the latest SettledUntil
}

func newJournal() journal {
	return journal{
		records: make(map[store.JournalKey]store.JournalRecord), written: make(map[store.JournalKey]time.Time), rows: make(map[rowKey]store.JournalRow),
		open: make(map[time.Time]struct{}),
	}
}

// checkJournal refuses records that no aggregator should send.
func (s *Store) checkJournal(c *store.Commit) error {
	expiries := make(map[store.JournalKey]time.Time)
	for i := range c.Records {
		r := &c.Records[i]
		if _, ok := expiries[r.Key]; ok {
			return s.mistake("record %x twice in a commit", r.Key)
		}
		if expiries[r.Key] = r.ExpireAt; len(r.Data) > store.MaxJournalRecord || len(r.Data) == 0 {
			return s.mistake("record %x of %d bytes", r.Key, len(r.Data))
		}
	}
	rows := make(map[rowKey]bool)
	record := 0
	for i := range c.Rows {
		r := &c.Rows[i]
		for record < len(c.Records) && c.Records[record].Key != r.Place.Key {
			record++
		}
		if record == len(c.Records) {
			return s.mistake("row %s of %q is out of order", r.Place, r.Counter)
		}
		key := rowKey{r.Counter, r.Place}
		if at, ok := expiries[r.Place.Key]; !ok || rows[key] || !at.Equal(r.ExpireAt) {
			return s.mistake("row %s of %q without a record, or twice", r.Place, r.Counter)
		}
		rows[key] = true
	}
	return nil
}

func (s *Store) journalLocked(c *store.Commit, at time.Time) error {
	for i := range c.Records {
		if _, ok := s.journal.records[c.Records[i].Key]; ok {
			return fmt.Errorf("fakestore: %w: record %x exists", store.ErrMarkerExists, c.Records[i].Key)
		}
	}
	for _, r := range c.Records {
		r.Data = bytes.Clone(r.Data)
		s.journal.records[r.Key], s.journal.written[r.Key] = r, at
	}
	for _, r := range c.Rows {
		r.Data = bytes.Clone(r.Data)
		s.journal.rows[rowKey{r.Counter, r.Place}] = r
	}
	return nil
}

// JournalMoment returns now, as Datastore does, or with Options.Age a moment of the store, as Pebble does.
func (s *Store) JournalMoment(now time.Time) (at time.Time, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Age == nil {
		return now.Truncate(time.Microsecond), func() {}
	}
	at = s.commitTimeLocked()
	s.journal.open[at] = struct{}{}
	return at, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.journal.open, at)
	}
}

// settledLocked is the journal's SettledUntil.
func (s *Store) settledLocked() time.Time {
	until := s.readTimeLocked()
	switch {
	case s.opts.Age == nil:
		until = until.Add(-store.JournalSettle)
	case len(s.journal.open) > 0:
		until = slices.MinFunc(slices.Collect(maps.Keys(s.journal.open)), time.Time.Compare).Add(-time.Microsecond)
	default:
		until = s.commitTimeLocked()
	}
	if until.After(s.journal.settled) {
		s.journal.settled = until
	}
	return s.journal.settled
}

// settledAtLocked is the SettledUntil of a view that begins now at that moment.
func (s *Store) settledAtLocked(at time.Time) time.Time {
	switch {
	case s.opts.Age == nil:
		return at.Add(-store.JournalSettle)
	case len(s.journal.open) > 0:
		return slices.MinFunc(slices.Collect(maps.Keys(s.journal.open)), time.Time.Compare).Add(-time.Microsecond)
	}
	return at
}

// JournalRecords returns the records of a range.
func (s *Store) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.run(ctx, Journal, func() error {
		page.SettledUntil = s.settledLocked()
		for key, r := range s.journal.records {
			if q.Has(r.Place()) && !key.Time().After(page.SettledUntil) {
				page.Records = append(page.Records, r)
			}
		}
		slices.SortFunc(page.Records, func(a, b store.JournalRecord) int { return a.Place().Compare(b.Place()) })
		page.Records, page.More = cut(page.Records, q)
		return nil
	})
	return page, err
}

// JournalView opens a view that has the journal too.
func (s *Store) JournalView() store.JournalView { return &View{store: s} }

// JournalRecords returns the records of a range as of the view's moment.
func (v *View) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	s := v.store
	err = s.run(ctx, Journal, func() error {
		at := v.pinLocked()
		page.SettledUntil = v.settled
		for key, r := range s.journal.records {
			if q.Has(r.Place()) && !s.journal.written[key].After(at) {
				page.Records = append(page.Records, r)
			}
		}
		slices.SortFunc(page.Records, func(a, b store.JournalRecord) int { return a.Place().Compare(b.Place()) })
		page.Records, page.More = cut(page.Records, q)
		return nil
	})
	return page, err
}

// JournalRows returns the rows of a counter in a range as of the view's moment.
func (v *View) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	s := v.store
	err = s.run(ctx, Journal, func() error {
		at := v.pinLocked()
		page.SettledUntil = v.settled
		for key, r := range s.journal.rows {
			if key.counter == counter && q.Has(key.place) && !s.journal.written[key.place.Key].After(at) {
				page.Rows = append(page.Rows, r)
			}
		}
		slices.SortFunc(page.Rows, func(a, b store.JournalRow) int { return a.Place.Compare(b.Place) })
		page.Rows, page.More = cut(page.Rows, q)
		return nil
	})
	return page, err
}

// JournalRows returns the rows of a counter in a range.
func (s *Store) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.run(ctx, Journal, func() error {
		page.SettledUntil = s.settledLocked()
		for key, r := range s.journal.rows {
			if key.counter == counter && q.Has(key.place) && !key.place.Key.Time().After(page.SettledUntil) {
				page.Rows = append(page.Rows, r)
			}
		}
		slices.SortFunc(page.Rows, func(a, b store.JournalRow) int { return a.Place.Compare(b.Place) })
		page.Rows, page.More = cut(page.Rows, q)
		return nil
	})
	return page, err
}

// cut keeps one answer of all that a query asks for.
func cut[T any](all []T, q store.JournalQuery) (kept []T, more bool) {
	switch n := len(all) - q.Limit; {
	case n <= 0:
		return all, false
	case q.Last:
		return all[n:], true
	}
	return all[:q.Limit], true
}

// ReplaceRecord replaces the data of a record.
func (s *Store) ReplaceRecord(ctx context.Context, old, next *store.JournalRecord, rows []store.JournalRow) error {
	return s.run(ctx, ReplaceRecord, func() error {
		r, ok := s.journal.records[old.Key]
		if !ok || !bytes.Equal(r.Data, old.Data) {
			return fmt.Errorf("fakestore: %w", store.ErrChanged)
		}
		r.Data = bytes.Clone(next.Data)
		s.journal.records[r.Key] = r
		for i := range rows {
			delete(s.journal.rows, rowKey{rows[i].Counter, rows[i].Place})
		}
		return nil
	})
}

// SweepJournal removes each record as early as it may.
func (s *Store) SweepJournal(ctx context.Context) error {
	return s.run(ctx, SweepJournal, func() error {
		now := s.readTimeLocked()
		maps.DeleteFunc(s.journal.records, func(_ store.JournalKey, r store.JournalRecord) bool { return !r.ExpireAt.After(now) })
		maps.DeleteFunc(s.journal.rows, func(_ rowKey, r store.JournalRow) bool { return !r.ExpireAt.After(now) })
		return nil
	})
}

// Journaled returns all records in the order of their keys, settled or not.
func (s *Store) Journaled() (records []store.JournalRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.journal.records {
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b store.JournalRecord) int { return a.Place().Compare(b.Place()) })
	return records
}

// WriteRecords writes the records and rows of a commit by themselves, for defects.
func (s *Store) WriteRecords(c *store.Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.journalLocked(c, s.commitTimeLocked())
}
