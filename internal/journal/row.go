package journal

import (
	"errors"

	"github.com/countmill/countmill/store"
)

// A Line is one entry of the journal with what its record says about it.
type Line struct {
	Place store.JournalPlace
	Part  *Part // of which Entry is one
	Entry *Entry
}

// Lines visits the increments of a record in the order of their places. It leaves out erased ones. Corrections
// and opening balances have no increments.
func (r *Record) Lines(key store.JournalKey, visit func(Line)) {
	if r.Kind == AppliedKind {
		r.Entries(key, visit)
	}
}

// Entries is Lines for records of any kind.
func (r *Record) Entries(key store.JournalKey, visit func(Line)) {
	position := uint32(0)
	for i := range r.Parts {
		p := &r.Parts[i]
		for k := range p.Entries {
			if e := &p.Entries[k]; !e.Erased {
				visit(Line{store.JournalPlace{Key: key, Position: position}, p, e})
			}
			position++
		}
	}
}

// EncodeRow appends the data of the row of an entry to dst: a record of it alone.
func EncodeRow(dst []byte, p *Part, e *Entry) []byte {
	one := *p
	one.Entries = []Entry{{Counter: e.Counter, Delta: e.Delta}}
	r := Record{Parts: []Part{one}}
	return r.Encode(dst)
}

// DecodeRow is the opposite of EncodeRow.
func DecodeRow(row *store.JournalRow) (Line, error) {
	r, err := Decode(row.Data)
	if err != nil {
		return Line{}, err
	}
	if len(r.Parts) != 1 || len(r.Parts[0].Entries) != 1 || r.Parts[0].Entries[0].Erased {
		return Line{}, errors.New("a row of the journal is not one entry")
	}
	return Line{row.Place, &r.Parts[0], &r.Parts[0].Entries[0]}, nil
}
