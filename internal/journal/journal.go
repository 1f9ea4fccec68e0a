// Package journal has the format of the records of the journal: the parts that a commit applied, and of
// them the entries of counters with a journal. Stores keep the bytes and do not read them.
//
// A record is
//
//	1 byte     format, 1
//	1 byte     0, or 1 for a correction, or 2 for an opening balance
//	an opening balance's header (OpeningBalance), only in an opening balance
//	varint     number of parts; for each part:
//	  16 bytes   the part's id
//	  8 bytes    the fingerprint of the whole part, also of the entries that are not here
//	  varint     the minute of its increments
//	  string     the sender, or nothing
//	  varint     number of entries; for each entry:
//	    1 byte     0, or 1 if the entry was erased
//	    string     the counter, unless it was erased
//	    varint     the delta, in zigzag, unless it was erased
//
// A string is a varint with its length, and its bytes.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	format = 1

	idLen, fingerprintLen = 16, 8
)

// A Part is a part that a commit applied.
type Part struct {
	ID wire.PartID
	// Fingerprint is that of the whole part (wire.Part.Fingerprint).
	Fingerprint wire.Fingerprint
	// Minute is when the increments happened.
	Minute wire.Minute
	// Sender is the name of the token with which the increments came; empty if it is not known.
	Sender string
	// Entries are those of the part that belong into the record. The record of another rule may
	// have others, under the same id.
	Entries []Entry
}

// An Entry is the delta of one counter in a part.
type Entry struct {
	Counter string
	Delta   int64
	// Erased is true if nothing is left of it but its place.
	Erased bool
}

// A Record is the content of store.JournalRecord.Data.
type Record struct {
	Kind Kind
	// OpeningBalance is the header of an opening balance; nil for other kinds.
	OpeningBalance *OpeningBalance
	Parts          []Part
}

// MaxPartSize is the most bytes that a part adds to a record, beside those of its entries.
func MaxPartSize(sender string) int {
	return idLen + fingerprintLen + 3*binary.MaxVarintLen32 + len(sender)
}

// MaxEntrySize is the most bytes that an entry adds to a record.
func MaxEntrySize(counter string) int {
	return 1 + binary.MaxVarintLen32 + len(counter) + binary.MaxVarintLen64
}

// MaxRecord is the most bytes of the parts in a record (MaxPartSize, MaxEntrySize).
const MaxRecord = store.MaxJournalRecord - 2 - binary.MaxVarintLen32

// Encode appends a record to dst.
func (r *Record) Encode(dst []byte) []byte {
	dst = append(dst, format, byte(r.Kind))
	if r.Kind == OpeningBalanceKind {
		dst = r.OpeningBalance.Encode(dst)
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Parts)))
	for i := range r.Parts {
		p := &r.Parts[i]
		dst = append(dst, p.ID[:]...)
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Fingerprint))
		dst = binary.AppendUvarint(dst, uint64(p.Minute))
		dst = appendText(dst, p.Sender)
		dst = binary.AppendUvarint(dst, uint64(len(p.Entries)))
		for k := range p.Entries {
			dst = appendEntry(dst, &p.Entries[k])
		}
	}
	return dst
}

func appendEntry(dst []byte, e *Entry) []byte {
	if e.Erased {
		return append(dst, 1)
	}
	return binary.AppendVarint(appendText(append(dst, 0), e.Counter), e.Delta)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Decode reads a record. It keeps nothing of data.
func Decode(data []byte) (r Record, err error) {
	d := decoder{left: data}
	if f := d.octet(); d.err == nil && f != format {
		return r, fmt.Errorf("a record of format %d, this version reads %d", f, format)
	}
	r.Kind = Kind(d.octet())
	if r.Kind == OpeningBalanceKind {
		r.OpeningBalance = d.opening()
	}
	for range d.count(idLen + fingerprintLen + 3) {
		r.Parts = append(r.Parts, d.part())
	}
	switch {
	case d.err != nil:
	case r.Kind > OpeningBalanceKind:
		d.err = fmt.Errorf("a record of kind %d", r.Kind)
	case len(d.left) > 0:
		d.err = fmt.Errorf("%d bytes after its end", len(d.left))
	}
	if d.err != nil {
		return Record{}, fmt.Errorf("a record of the journal: %w", d.err)
	}
	return r, nil
}

// decoder reads a record, and keeps the first error. After an error it reads zeros.
type decoder struct {
	left []byte
	err  error
}

var errShort = errors.New("is cut off")

func (d *decoder) take(n int) []byte {
	if d.err == nil && n > len(d.left) {
		d.err = errShort
	}
	if d.err != nil {
		return nil
	}
	b := d.left[:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) octet() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.left)
	if size <= 0 && d.err == nil {
		d.err = errShort
	}
	if d.err != nil {
		return 0
	}
	d.left = d.left[size:]
	return n
}

// count is a number of things that have at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.number()
	if d.err == nil && n > uint64(len(d.left)/size) {
		d.err = errShort
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) text() string { return string(d.take(d.count(1))) }

func (d *decoder) part() (p Part) {
	copy(p.ID[:], d.take(idLen))
	if b := d.take(fingerprintLen); b != nil {
		p.Fingerprint = wire.Fingerprint(binary.BigEndian.Uint64(b))
	}
	minute := d.number()
	if d.err == nil && minute > uint64(wire.MinuteOf(wire.MaxTime)) {
		d.err = fmt.Errorf("a minute of %d", minute)
	}
	p.Minute, p.Sender = wire.Minute(minute), d.text()
	for range d.count(1) {
		p.Entries = append(p.Entries, d.entry())
	}
	return p
}

func (d *decoder) entry() (e Entry) {
	switch state := d.octet(); {
	case d.err != nil:
		return e
	case state == 1:
		e.Erased = true
		return e
	case state != 0:
		d.err = fmt.Errorf("an entry of kind %d", state)
		return e
	}
	e.Counter = d.text()
	delta, size := binary.Varint(d.left)
	if size <= 0 && d.err == nil {
		d.err = errShort
	}
	if d.err == nil {
		e.Delta, d.left = delta, d.left[size:]
	}
	return e
}
