package journal

import (
	"encoding/binary"
	"errors"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// A Kind is the meaning of the entries of a record.
type Kind uint8

// The kinds of records.
const (
	// AppliedKind: increments that the record's commit applied.
	AppliedKind Kind = iota
	// CorrectionKind: amounts by which a recount has corrected sums, in the record's commit. The minute
	// of a part is that of the corrected bucket; 0 for a total. These are no increments: they bring a sum back to the
	// increments that the journal has.
	CorrectionKind
	// OpeningBalanceKind: opening balances.
	OpeningBalanceKind
)

// An OpeningBalance says of which counters a record has the opening balances: the sums of their shards at a place of the
// journal. A counter of the opening balance that has no entry did not exist there. A recount adds the increments after
// the place.
type OpeningBalance struct {
	// Prefix begins the names of all counters of the opening balance. From and To are the first and the last
	// wire.Order of them.
	Prefix   string
	From, To uint64
	// Cut is the place: the balances have the commits of records before it, and no others.
	Cut store.JournalPlace
	// Settings is the version of the settings by which the opening balance was made.
	Settings int64
}

// OpeningBalanceRows is the name under which each opening balance has a row (store.JournalRow), whose data is its header.
// Increments of groups are not in the journal, so no counter has it.
const OpeningBalanceRows = countmill.GroupMark + "openings"

// Encode appends the header to dst.
func (o *OpeningBalance) Encode(dst []byte) []byte {
	dst = appendText(dst, o.Prefix)
	dst = binary.BigEndian.AppendUint64(dst, o.From)
	dst = binary.BigEndian.AppendUint64(dst, o.To)
	return binary.AppendUvarint(o.Cut.Append(dst), uint64(o.Settings))
}

// The balances of a record are entries of its first part. A balance that does not fit int64 is split (int128.Int.Split): the second part has its upper
// half.

// AddBalance adds the balance of a counter to an opening balance that has one part or two.
func (r *Record) AddBalance(counter string, balance int128.Int) {
	low, fits := balance.Int64()
	if !fits {
		var high int64
		if low, high, _ = balance.Split(); len(r.Parts) == 1 {
			r.Parts = append(r.Parts, Part{ID: r.Parts[0].ID})
		}
		r.Parts[1].Entries = append(r.Parts[1].Entries, Entry{Counter: counter, Delta: high})
	}
	r.Parts[0].Entries = append(r.Parts[0].Entries, Entry{Counter: counter, Delta: low})
}

// Balance is the term of a balance that is in an entry of a part.
func Balance(part int, delta int64) int128.Int {
	if part == 0 {
		return int128.Of(delta)
	}
	return int128.Join(0, delta)
}

// MaxBalanceSize is the most bytes that AddBalance adds to a record, beside those of two parts.
func MaxBalanceSize(counter string, balance int128.Int) int {
	if _, fits := balance.Int64(); fits {
		return MaxEntrySize(counter)
	}
	return 2 * MaxEntrySize(counter)
}

// DecodeOpeningBalance is the opposite of Encode.
func DecodeOpeningBalance(data []byte) (*OpeningBalance, error) {
	d := decoder{left: data}
	o := d.opening()
	if d.err == nil && len(d.left) > 0 {
		d.err = errors.New("has bytes after its end")
	}
	return o, d.err
}

const placeLen = 20

func (d *decoder) opening() *OpeningBalance {
	o := &OpeningBalance{Prefix: d.text()}
	if b := d.take(16); b != nil {
		o.From, o.To = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	}
	o.Cut, _ = store.JournalPlaceOf(d.take(placeLen))
	o.Settings = int64(d.number())
	return o
}
