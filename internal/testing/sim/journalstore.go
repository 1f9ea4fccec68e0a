package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/store"
)

// A journalStore is the store as a reader of the journal sees it.
type journalStore struct{ adminStore }

var _ admin.JournalStore = journalStore{}

func queryKey(counter string, q *store.JournalQuery) uint64 {
	return stringsKey([]string{counter, q.From.String(), q.To.String(), fmt.Sprint(q.Limit, q.Last)})
}

func queryText(counter string, q *store.JournalQuery) text {
	return func() string {
		return fmt.Sprintf("%s from %s to %s, %d, last: %t", counter, q.From, q.To, q.Limit, q.Last)
	}
}

func pageText(page *store.JournalPage) text {
	return func() string {
		return fmt.Sprintf("%d records, %d rows, more: %t, settled until %s", len(page.Records), len(page.Rows), page.More, page.SettledUntil.Format(clockFormat))
	}
}

// JournalRecords reads records.
func (s journalStore) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.call(ctx, "records", queryKey("", &q), ReadFails, queryText("", &q), pageText(&page), func() (err error) {
		page, err = s.fake.JournalRecords(background, q)
		return err
	})
	return page, err
}

// JournalRows reads rows of a counter.
func (s journalStore) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.call(ctx, "rows", queryKey(counter, &q), ReadFails, queryText(counter, &q), pageText(&page), func() (err error) {
		page, err = s.fake.JournalRows(background, counter, q)
		return err
	})
	return page, err
}

// ReplaceRecord is for erasures, which no schedule has.
func (s journalStore) ReplaceRecord(context.Context, *store.JournalRecord, *store.JournalRecord, []store.JournalRow) error {
	return errors.New("sim: nobody calls this")
}

// SweepJournal is for whoever aggregates; here records stay.
func (s journalStore) SweepJournal(context.Context) error {
	return errors.New("sim: nobody calls this")
}

// JournalView is for recounts, which no schedule has.
func (s journalStore) JournalView() store.JournalView { panic("sim: nobody calls this") }
