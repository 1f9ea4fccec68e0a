package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The journal. A third key for each record lists its rows under the hour in which they may be
// removed, so a sweep reads no record.

func (k keyspace) journalRecord(dst []byte, key store.JournalKey) []byte {
	return append(k.kind(dst, kindJournal), key[:]...)
}

// journalRows appends the prefix of the rows of a counter.
func (k keyspace) journalRows(dst []byte, counter string) []byte {
	dst = binary.BigEndian.AppendUint16(k.kind(dst, kindRow), uint16(len(counter)))
	return append(dst, counter...)
}

func (k keyspace) journalRow(dst []byte, counter string, p store.JournalPlace) []byte {
	return p.Append(k.journalRows(dst, counter))
}

// expiry appends the prefix of the records and rows that may be removed in an hour.
func (k keyspace) expiry(dst []byte, hour uint32) []byte {
	return binary.BigEndian.AppendUint32(k.kind(dst, kindExpiry), hour)
}

// expiryHour is the hour since 1970 after the end of which a record may be removed.
func expiryHour(expireAt time.Time) uint32 { return uint32(max(expireAt.Unix(), 0) / 3600) }

// journal are the attempts to commit whose records have a moment and whose Fold has not returned.
type journal struct {
	mu   sync.Mutex
	open []time.Time // in ascending order
	// changing is held while records are removed or replaced. Folds only insert.
	changing sync.Mutex
}

// JournalMoment returns a moment of this store, because the machine's clock can be set back. The journal is
// settled up to the moment before that of the oldest attempt under way.
func (s *Store) JournalMoment(time.Time) (at time.Time, done func()) {
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	at = s.moments.next()
	j.open = append(j.open, at)
	return at, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if i, ok := slices.BinarySearchFunc(j.open, at, time.Time.Compare); ok {
			j.open = slices.Delete(j.open, i, i+1)
		}
	}
}

// lastRecorded returns the moment of the newest record; zero without one. After a kill it may be later than the last moment in
// the commit count's file. No record may come before it, also if the clock was set back: an opening balance is as of a moment before
// its own record.
func (s *Store) lastRecorded() (at time.Time, err error) {
	prefix := s.keys.kind(nil, kindJournal)
	iter, err := s.db.NewIter(&pebbledb.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return at, err
	}
	if iter.Last() {
		if name := iter.Key()[len(prefix):]; len(name) == len(store.JournalKey{}) {
			at = store.JournalKey(name).Time()
		}
	}
	return at, errors.Join(iter.Error(), iter.Close())
}

// settled returns a moment up to which no record is added any more, and all are on disk.
func (s *Store) journalSettled() time.Time {
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.open) > 0 {
		return j.open[0].Add(-time.Microsecond)
	}
	return s.moments.next()
}

// setJournal writes the records of a commit into its batch.
func (s *Store) setJournal(b *pebbledb.Batch, c *store.Commit) error {
	var key, value, rows []byte
	left := c.Rows
	for i := range c.Records {
		r := &c.Records[i]
		key = s.keys.journalRecord(key[:0], r.Key)
		if err := b.Set(key, encodeExpiring(value[:0], r.ExpireAt, r.Data), nil); err != nil {
			return err
		}
		rows = rows[:0]
		for len(left) > 0 && left[0].Place.Key == r.Key {
			row := &left[0]
			left = left[1:]
			key = s.keys.journalRow(key[:0], row.Counter, row.Place)
			if err := b.Set(key, encodeExpiring(value[:0], row.ExpireAt, row.Data), nil); err != nil {
				return err
			}
			rows = appendRowName(rows, row)
		}
		key = append(s.keys.expiry(key[:0], expiryHour(r.ExpireAt)), r.Key[:]...)
		if err := b.Set(key, rows, nil); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%w: %d rows of the journal are out of order", store.ErrRefused, len(left))
	}
	return nil
}

// appendRowName appends the part of a row's key that is not in the record's key.
func appendRowName(dst []byte, row *store.JournalRow) []byte {
	dst = binary.BigEndian.AppendUint32(dst, row.Place.Position)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(row.Counter)))
	return append(dst, row.Counter...)
}

// eachRowName visits the names of appendRowName.
func eachRowName(names []byte, visit func(counter string, position uint32) error) error {
	for len(names) > 0 {
		if len(names) < 6 || len(names) < 6+int(binary.BigEndian.Uint16(names[4:])) {
			return errors.New("the rows of a record are cut off")
		}
		end := 6 + int(binary.BigEndian.Uint16(names[4:]))
		if err := visit(string(names[6:end]), binary.BigEndian.Uint32(names)); err != nil {
			return err
		}
		names = names[end:]
	}
	return nil
}

// encodeExpiring appends the value of a record or a row: 8 bytes of its expiry in microseconds, and
// its data.
func encodeExpiring(dst []byte, expireAt time.Time, data []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, uint64(expireAt.UnixMicro())), data...)
}

func decodeExpiring(value []byte) (expireAt time.Time, data []byte, err error) {
	if len(value) < 8 {
		return expireAt, nil, fmt.Errorf("%d bytes are no record of the journal", len(value))
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(value))).UTC(), bytes.Clone(value[8:]), nil
}

// JournalRecords returns the records of a range.
func (s *Store) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.journalPage(ctx, s.keys.kind(nil, kindJournal), q, &page, takeRecord(&page))
	return page, err
}

// takeRecord returns a function that adds a record to the page.
func takeRecord(page *store.JournalPage) func(name, value []byte) (size int, err error) {
	return func(name, value []byte) (size int, err error) {
		if len(name) != len(store.JournalKey{}) {
			return 0, fmt.Errorf("%x is no key of the journal", name)
		}
		r := store.JournalRecord{Key: store.JournalKey(name)}
		r.ExpireAt, r.Data, err = decodeExpiring(value)
		page.Records = append(page.Records, r)
		return len(r.Data), err
	}
}

// JournalView opens a view that has the journal too.
func (s *Store) JournalView() store.JournalView { return &view{store: s} }

// JournalRecords returns the records of a range as of the snapshot, settled or not.
func (v *view) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	err = v.journalPage(ctx, v.store.keys.kind(nil, kindJournal), q, &page, takeRecord(&page))
	return page, err
}

// JournalRows returns the rows of a counter in a range as of the snapshot.
func (v *view) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	err = v.journalPage(ctx, v.store.keys.journalRows(nil, counter), q, &page, takeRow(&page, counter))
	return page, err
}

func (v *view) journalPage(ctx context.Context, prefix []byte, q store.JournalQuery, page *store.JournalPage, visit func(name, value []byte) (size int, err error)) error {
	if err := v.store.enter(); err != nil {
		return err
	}
	defer v.store.closing.RUnlock()
	if err := v.pin(ctx); err != nil {
		return err
	}
	page.SettledUntil = v.recorded
	if (q.To == store.JournalPlace{}) {
		q.To = store.JournalPlace{Key: lastJournalKey}
	}
	return readJournal(ctx, v.snapshot, prefix, q, page, visit)
}

var lastJournalKey = store.NewJournalKey(wire.MaxTime, math.MaxUint64)

// JournalRows returns the rows of a counter in a range.
func (s *Store) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.journalPage(ctx, s.keys.journalRows(nil, counter), q, &page, takeRow(&page, counter))
	return page, err
}

// takeRow returns a function that adds a row of the counter to the page.
func takeRow(page *store.JournalPage, counter string) func(name, value []byte) (size int, err error) {
	return func(name, value []byte) (size int, err error) {
		p, ok := store.JournalPlaceOf(name)
		if !ok {
			return 0, fmt.Errorf("%x is no key of a row of the journal", name)
		}
		r := store.JournalRow{Counter: counter, Place: p}
		r.ExpireAt, r.Data, err = decodeExpiring(value)
		page.Rows = append(page.Rows, r)
		return len(r.Data), err
	}
}

// journalPage visits the keys of a range. It visits nothing that is not settled: a record with an
// earlier moment can still come.
func (s *Store) journalPage(ctx context.Context, prefix []byte, q store.JournalQuery, page *store.JournalPage, visit func(name, value []byte) (size int, err error)) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	// Before the iterator: it then shows everything up to this moment.
	page.SettledUntil = s.journalSettled()
	end := store.JournalAt(page.SettledUntil.Add(time.Microsecond))
	if (q.To == store.JournalPlace{}) || q.To.Compare(end) > 0 {
		q.To = end
	}
	return readJournal(ctx, s.db, prefix, q, page, visit)
}

// readJournal visits the keys of a range that has an end.
func readJournal(ctx context.Context, db pebbledb.Reader, prefix []byte, q store.JournalQuery, page *store.JournalPage, visit func(name, value []byte) (size int, err error)) error {
	if q.From.Compare(q.To) >= 0 {
		return nil
	}
	bounds := &pebbledb.IterOptions{LowerBound: appendBound(slices.Clone(prefix), q.From), UpperBound: appendBound(slices.Clone(prefix), q.To)}
	iter, err := db.NewIter(bounds)
	if err != nil {
		return err
	}
	first, next := iter.First, iter.Next
	if q.Last {
		first, next = iter.Last, iter.Prev
	}
	n, bytes := 0, 0
	for ok := first(); ok && err == nil; ok = next() {
		if n >= q.Limit || bytes >= store.JournalPageBytes {
			page.More = true
			break
		}
		var value []byte
		if value, err = iter.ValueAndErr(); err != nil {
			break
		}
		var size int
		size, err = visit(iter.Key()[len(prefix):], value)
		n, bytes = n+1, bytes+size
		if n%1000 == 0 && err == nil {
			err = ctx.Err()
		}
	}
	if q.Last { // it was read from its end
		slices.Reverse(page.Records)
		slices.Reverse(page.Rows)
	}
	return errors.Join(err, iter.Error(), iter.Close())
}

// appendBound appends a place so that it also orders the keys of records, which have no position: a
// record is at position 0.
func appendBound(prefix []byte, p store.JournalPlace) []byte {
	if p.Position == 0 {
		return append(prefix, p.Key[:]...)
	}
	return p.Append(prefix)
}

// ReplaceRecord replaces a record in one synced batch.
func (s *Store) ReplaceRecord(ctx context.Context, old, next *store.JournalRecord, rows []store.JournalRow) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	s.journal.changing.Lock()
	defer s.journal.changing.Unlock()
	key := s.keys.journalRecord(nil, old.Key)
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebbledb.ErrNotFound) {
		return fmt.Errorf("the record is gone: %w", store.ErrChanged)
	}
	if err != nil {
		return err
	}
	expireAt, data, err := decodeExpiring(value)
	if err := errors.Join(err, closer.Close()); err != nil {
		return err
	}
	if !bytes.Equal(data, old.Data) {
		return fmt.Errorf("another change was first: %w", store.ErrChanged)
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := b.Set(key, encodeExpiring(nil, expireAt, next.Data), nil); err != nil {
		return err
	}
	for i := range rows {
		if err := b.Delete(s.keys.journalRow(nil, rows[i].Counter, rows[i].Place), nil); err != nil {
			return err
		}
	}
	return s.commit(b)
}

// journalLot is the number of records that are removed in one batch.
const journalLot = 200

// SweepJournal removes the records and rows whose hour of expiry is over.
func (s *Store) SweepJournal(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	// Records expire by moments, which are never behind the clock. A clock that showed 2040 once leaves moments there.
	end := s.keys.expiry(nil, expiryHour(s.cfg.clock()))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		keys, err := s.keysFrom(s.keys.kind(nil, kindExpiry), end)
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := s.sweepJournalLot(keys[:min(len(keys), journalLot)]); err != nil {
			return err
		}
	}
}

// sweepJournalLot does not sync: a record that comes back is removed again.
func (s *Store) sweepJournalLot(keys [][]byte) error {
	s.journal.changing.Lock()
	defer s.journal.changing.Unlock()
	b := s.db.NewBatch()
	defer b.Close()
	at := len(s.keys.expiry(nil, 0))
	for _, key := range keys {
		if len(key) != at+len(store.JournalKey{}) {
			return fmt.Errorf("%x is no key of a record's expiry", key)
		}
		record := store.JournalKey(key[at:])
		names, closer, err := s.db.Get(key)
		if err != nil {
			return err
		}
		err = eachRowName(names, func(counter string, position uint32) error {
			return b.Delete(s.keys.journalRow(nil, counter, store.JournalPlace{Key: record, Position: position}), nil)
		})
		if err := errors.Join(err, closer.Close(), b.Delete(s.keys.journalRecord(nil, record), nil), b.Delete(key, nil)); err != nil {
			return err
		}
	}
	return b.Commit(pebbledb.NoSync)
}
