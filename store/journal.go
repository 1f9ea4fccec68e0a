package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/countmill/countmill"
)

// MaxJournalRecord is the most bytes of JournalRecord.Data.
const MaxJournalRecord = 512 << 10

// A JournalKey names a record of the journal, and orders records: the store's time of the attempt to
// commit in microseconds since 1970, and random bits, because two commits can share a microsecond.
type JournalKey [16]byte

// NewJournalKey returns the key of a record of the time at, which must be in wire.InRange. random
// must differ from record to record.
func NewJournalKey(at time.Time, random uint64) (k JournalKey) {
	binary.BigEndian.PutUint64(k[:8], uint64(at.UnixMicro()))
	binary.BigEndian.PutUint64(k[8:], random)
	return k
}

// Time returns the store's time of the attempt.
func (k JournalKey) Time() time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(k[:8]))).UTC()
}

// A JournalPlace is the place of one entry of the journal. Places have an order, and their strings
// have the same order. The zero JournalPlace is before all others.
type JournalPlace struct {
	Key      JournalKey
	Position uint32 // of the entry in its record, from 0
}

// Compare orders places.
func (p JournalPlace) Compare(q JournalPlace) int {
	return cmp.Or(cmp.Compare(string(p.Key[:]), string(q.Key[:])), cmp.Compare(p.Position, q.Position))
}

// Next is the first place after p.
func (p JournalPlace) Next() JournalPlace {
	if p.Position++; p.Position != 0 {
		return p
	}
	for i := len(p.Key) - 1; i >= 0; i-- {
		if p.Key[i]++; p.Key[i] != 0 {
			break
		}
	}
	return p
}

// String returns 40 hexadecimal digits.
func (p JournalPlace) String() string { return hex.EncodeToString(p.Append(nil)) }

// Append appends the place in 20 bytes, which have the order of places.
func (p JournalPlace) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint32(append(dst, p.Key[:]...), p.Position)
}

// JournalPlaceOf is the opposite of Append. It reports false if b is not 20 bytes.
func JournalPlaceOf(b []byte) (p JournalPlace, ok bool) {
	if len(b) != len(p.Key)+4 {
		return p, false
	}
	return JournalPlace{JournalKey(b[:16]), binary.BigEndian.Uint32(b[16:])}, true
}

// ParseJournalPlace is the opposite of String. The error is a *countmill.FieldError about the field.
func ParseJournalPlace(field, text string) (JournalPlace, error) {
	if b, err := hex.DecodeString(text); err == nil {
		if p, ok := JournalPlaceOf(b); ok && p.String() == text {
			return p, nil
		}
	}
	return JournalPlace{}, &countmill.FieldError{Field: field, Problem: "is no key of the journal", Limit: "40 digits of 0-9 and a-f, from an earlier answer"}
}

// JournalAt is the place before all entries of the time at and later ones.
func JournalAt(at time.Time) JournalPlace { return JournalPlace{Key: NewJournalKey(at, 0)} }

// A JournalRecord is evidence of parts that a commit applied. It is written in that commit.
type JournalRecord struct {
	Key JournalKey
	// ExpireAt is when the store may remove the record. It is in whole microseconds.
	ExpireAt time.Time
	// Data is at most MaxJournalRecord bytes. Stores do not read it; package journal in internal has
	// its format.
	Data []byte
}

// Place is the place of the record's first entry.
func (r *JournalRecord) Place() JournalPlace { return JournalPlace{Key: r.Key} }

// A JournalRow is one entry of a record, once more under the name of its counter. A counter under a
// rule with Retention.Paged has a row for each entry, so a page reads only the rows that it shows.
type JournalRow struct {
	Counter  string
	Place    JournalPlace // of the entry in its record
	ExpireAt time.Time    // that of the record
	Data     []byte       // like JournalRecord.Data
}

// A JournalQuery asks for some records or rows: those with From <= place < To.
type JournalQuery struct {
	From JournalPlace
	To   JournalPlace // zero: no end
	// Settled asks only for those with a time up to JournalPage.SettledUntil. Behind later ones older ones may appear in a later view.
	Settled bool
	// Limit is the most records or rows of the answer, at least 1. An answer also ends after
	// JournalPageBytes.
	Limit int
	// Last asks for the last ones of the range instead of the first ones.
	Last bool
}

// JournalPageBytes is the amount of data after which a store ends an answer. The last record may exceed it.
const JournalPageBytes = 4 << 20

// A JournalPage is an answer, in ascending order of places.
type JournalPage struct {
	Records []JournalRecord // of JournalRecords
	Rows    []JournalRow    // of JournalRows
	// More means that the range has more: after the last one, or with Last before the first one.
	More bool
	// SettledUntil is a time up to which the journal is complete: no commit adds a record of this or an
	// earlier time any more. It does not go back.
	SettledUntil time.Time
}

// A JournalView is a View that shows the journal as of its moment: it has the records of exactly the
// commits whose sums it shows.
type JournalView interface {
	View

	// JournalRecords and JournalRows return the records of a range, and the rows of a counter in it. A later view has no further record
	// of a time up to SettledUntil.
	JournalRecords(ctx context.Context, q JournalQuery) (JournalPage, error)
	JournalRows(ctx context.Context, counter string, q JournalQuery) (JournalPage, error)
}

// A Journal keeps the records of commits (Commit.Records) until their ExpireAt. Concurrent calls are
// allowed.
type Journal interface {
	// JournalMoment returns the time for the keys of the records of one attempt to commit. now is
	// the store's time as the caller knows it. The caller calls done when Fold has returned; until then
	// SettledUntil may wait for the attempt.
	JournalMoment(now time.Time) (at time.Time, done func())

	// JournalView opens a view that has the journal too.
	JournalView() JournalView

	// ReplaceRecord replaces the data of a record, if its data are those of old, and removes rows
	// of it, in one transaction. Otherwise it answers ErrChanged. old and next differ only in Data.
	ReplaceRecord(ctx context.Context, old, next *JournalRecord, rows []JournalRow) error
}
