package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// The names of records and rows have the order of places in the journal. A record is at position 0 of its key. Without the order of
// names all keys have the same engine.Key.Place, so they have that order too.

func (s *Store) journalKey(k store.JournalKey) engine.Key {
	key := engine.Key{Kind: kindJournal, Name: string(k[:])}
	if s.limits.Spread { // names rise with time
		key.Place = binary.BigEndian.Uint64(k[8:]) & upper
	}
	return key
}

func (s *Store) journalRowKey(counter string, p store.JournalPlace) engine.Key {
	key := engine.Key{Kind: kindJournalRow, Name: string(p.Append([]byte(counter + "\x00")))}
	if s.limits.Spread {
		key.Place = s.place(counter)
	}
	return key
}

// journalChanges yields the records and rows of a commit: a commit that was not applied leaves no evidence. It reports false if
// yield wants no more.
func (s *Store) journalChanges(c *store.Commit, yield func(*engine.Change) bool) bool {
	changes := make([]engine.Change, 0, len(c.Records)+len(c.Rows))
	for i := range c.Records {
		r := &c.Records[i]
		changes = append(changes, engine.Change{Key: s.journalKey(r.Key), Set: []engine.Field{field(fieldDue, micros(r.ExpireAt))}, Data: r.Data})
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		changes = append(changes, engine.Change{Key: s.journalRowKey(r.Counter, r.Place), Set: []engine.Field{field(fieldDue, micros(r.ExpireAt))}, Data: r.Data})
	}
	sortChanges(changes)
	for i := range changes {
		if !yield(&changes[i]) {
			return false
		}
	}
	return true
}

// A journal has the attempts to commit whose records have a moment and whose Fold has not returned.
type journal struct {
	mu   sync.Mutex
	open []time.Time // in ascending order
}

// JournalMoment returns a moment of the engine, because the machine's clock can be set back. An engine without moments has a clock
// that does not go back.
func (s *Store) JournalMoment(now time.Time) (at time.Time, done func()) {
	if !s.limits.Exclusive {
		return now.Truncate(time.Microsecond), func() {}
	}
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	at = s.engine.Moment()
	j.open = append(j.open, at)
	return at, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if i, ok := slices.BinarySearchFunc(j.open, at, time.Time.Compare); ok {
			j.open = slices.Delete(j.open, i, i+1)
		}
	}
}

// settled returns a moment up to which no record is added any more, by this process alone.
func (s *Store) settled() time.Time {
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.open) > 0 {
		return j.open[0].Add(-time.Microsecond)
	}
	return s.engine.Moment()
}

// Moment returns a moment, without a read: all views of it or a later one show every fold that returned before the call. It is zero
// where several processes share the engine.
func (s *Store) Moment() time.Time { return s.engine.Moment() }

// resume makes all moments come after the last record. No record may come before it, also if the clock was set back: an opening
// balance is as of a moment before its own record.
func (s *Store) resume(ctx context.Context) error {
	if !s.limits.Exclusive {
		return nil
	}
	v := s.view()
	defer v.Close()
	for row, err := range s.scan(ctx, v, engine.Range{Kind: kindJournal, ByName: s.limits.ByName, Reverse: true, Page: 1}) {
		if err != nil {
			return err
		}
		if p, ok := placeOf(row.Key.Name); ok {
			s.engine.Resume(p.Key.Time())
		}
		break
	}
	return nil
}

// placeOf returns the place of a name without its counter.
func placeOf(name string) (store.JournalPlace, bool) {
	if len(name) == len(store.JournalKey{}) {
		name += "\x00\x00\x00\x00"
	}
	return store.JournalPlaceOf([]byte(name))
}

// A journalView is a view that has the journal too.
type journalView struct {
	view
	until time.Time // of an exclusive engine: the view has all records up to it
}

// JournalView opens a view that has the journal too.
func (s *Store) JournalView() store.JournalView {
	v := &journalView{}
	if s.limits.Exclusive {
		v.until = s.settled() // before the first call, which fixes the moment
	}
	v.view = *s.view()
	return v
}

// settled returns the time of store.JournalPage.SettledUntil. Where processes share the engine, a slow one may still commit.
func (v *journalView) settled() time.Time {
	if v.store.limits.Exclusive {
		return v.until
	}
	return v.At().Add(-store.JournalSettle)
}

// JournalRecords returns the records of a range as of the view's moment.
func (v *journalView) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	err = v.journal(ctx, kindJournal, "", q, &page, func(p store.JournalPlace, expireAt time.Time, data []byte) {
		page.Records = append(page.Records, store.JournalRecord{Key: p.Key, ExpireAt: expireAt, Data: data})
	})
	return page, err
}

// JournalRows returns the rows of a counter in a range as of the view's moment.
func (v *journalView) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	err = v.journal(ctx, kindJournalRow, counter+"\x00", q, &page, func(p store.JournalPlace, expireAt time.Time, data []byte) {
		page.Rows = append(page.Rows, store.JournalRow{Counter: counter, Place: p, ExpireAt: expireAt, Data: data})
	})
	return page, err
}

// journal scans the names of a range that begin with prefix.
func (v *journalView) journal(ctx context.Context, kind engine.KindID, prefix string, q store.JournalQuery, page *store.JournalPage, take func(store.JournalPlace, time.Time, []byte)) error {
	if v.At().IsZero() {
		if _, err := v.Get(ctx, nil); err != nil {
			return err
		}
	}
	page.SettledUntil = v.settled()
	end := store.JournalAt(wire.MaxTime)
	if q.Settled {
		end = store.JournalAt(page.SettledUntil.Add(time.Microsecond))
	}
	if (q.To == store.JournalPlace{}) || q.To.Compare(end) > 0 {
		q.To = end
	}
	if q.From.Compare(q.To) >= 0 {
		return nil
	}
	r := engine.Range{Kind: kind, ByName: v.store.limits.ByName, From: boundOf(prefix, q.From), To: boundOf(prefix, q.To), Reverse: q.Last, Page: q.Limit + 1}
	n, size := 0, 0
	for row, err := range v.store.scan(ctx, v, r, engine.Data, fieldDue) {
		if err != nil {
			return err
		}
		if n == q.Limit || size >= store.JournalPageBytes {
			page.More = true
			break
		}
		p, ok := placeOf(row.Key.Name[len(prefix):])
		if !ok {
			return fmt.Errorf("%x is no place of the journal", row.Key.Name)
		}
		take(p, timeOf(row.Int64(fieldDue)), bytes.Clone(row.Data))
		n, size = n+1, size+len(row.Data)
	}
	if q.Last { // it was read from its end
		slices.Reverse(page.Records)
		slices.Reverse(page.Rows)
	}
	return nil
}

// boundOf returns a bound for records too, whose names have no position.
func boundOf(prefix string, p store.JournalPlace) engine.Key {
	if p.Position == 0 {
		return engine.Key{Name: prefix + string(p.Key[:])}
	}
	return engine.Key{Name: prefix + string(p.Append(nil))}
}

// ReplaceRecord is one transaction. Records expire meanwhile, and others replace them.
func (s *Store) ReplaceRecord(ctx context.Context, old, next *store.JournalRecord, rows []store.JournalRow) error {
	key := s.journalKey(old.Key)
	return s.transact(ctx, false, func(tx engine.Tx) error {
		found, err := s.get(ctx, tx, []engine.Key{key}, engine.Data)
		if err != nil {
			return err
		}
		if !found[0].Exists || !bytes.Equal(found[0].Data, old.Data) {
			return fmt.Errorf("the record is gone, or another change was first: %w", store.ErrChanged)
		}
		tx.Change(&engine.Change{Key: key, Op: engine.Update, Data: next.Data})
		for i := range rows {
			tx.Change(&engine.Change{Key: s.journalRowKey(rows[i].Counter, rows[i].Place), Op: engine.Delete})
		}
		return nil
	})
}
