package engine

import (
	"cmp"
	"slices"
	"time"
)

// A Field is a number of a field.
type Field struct {
	ID    FieldID
	Value Int
}

// A Row is an answer of a read. The caller does not change its Data and Fields.
type Row struct {
	// Key is set in scans. The memory of all of the row is the engine's, until Rows.Next or Rows.Close. In answers of Get
	// it is the caller's.
	Key    Key
	Exists bool
	// Bad is the reason why the row cannot be read: damage, or another program. It has then nothing else.
	Bad string
	// Updated is when the row was last written; zero if the engine does not know.
	Updated time.Time
	// Data is nil unless it was asked for.
	Data []byte
	// Fields are the fields of the read, by rising ID, without fields of 0.
	Fields []Field
}

// Int returns a field; 0 if it is absent.
func (r *Row) Int(id FieldID) Int {
	at, found := slices.BinarySearchFunc(r.Fields, id, func(f Field, id FieldID) int { return cmp.Compare(f.ID, id) })
	if !found {
		return Int{}
	}
	return r.Fields[at].Value
}

// Int64 returns a narrow field; 0 if it is absent.
func (r *Row) Int64(id FieldID) int64 {
	n, _ := r.Int(id).Int64()
	return n
}
