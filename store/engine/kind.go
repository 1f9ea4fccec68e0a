package engine

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"
)

// A KindID is the position of a kind in Kinds. Engines store it, so no kind ever moves.
type KindID uint8

// A Class is the way in which the rows of a kind change. An engine may store each class in its own way.
type Class uint8

// The classes.
const (
	// Once is for rows that are inserted and then never change: they expire. They have Data, and no scans.
	Once Class = iota
	// Sums is for rows of fields that commits add to without a read. They have no Data.
	Sums
	// Docs is for rows that are written whole: Data, and narrow fields that are set.
	Docs
)

// Kinds are all kinds of a database, by KindID. An engine gets them when it is opened.
type Kinds []Kind

// A Kind describes rows of one sort. The engine knows them by this description alone.
type Kind struct {
	// Name is in lower-case letters. Engines name tables by it.
	Name  string
	Class Class
	// Places and Parts say whether keys of the kind have a Place and a Part. Otherwise these are 0.
	Places, Parts bool
	// Binary says that names are any bytes; the kind then has no parts. Otherwise they are UTF-8 without bytes below the
	// space, so that an engine can put a Part behind a name, and the order stays.
	Binary bool
	// ByName says that the kind is scanned in the order of names too, and in reverse. Without places that is the order
	// of keys.
	ByName bool
	// Due is the narrow field by which Engine.Due lists rows, or by which rows expire if Expires is true: it then has
	// microseconds since 1970. Rows without it, or with 0, are neither listed nor do they expire. 0: the kind
	// has no such field.
	Due     FieldID
	Expires bool
	// Fields are all fields, by rising ID.
	Fields []FieldSpec
}

// A FieldID is the number of a field in its kind, from 1.
type FieldID uint32

// Data and All are in place of fields in a read. Data is Row.Data, and All is everything that the row has.
const (
	Data FieldID = 0
	All  FieldID = 1<<32 - 1
)

// A FieldSpec describes a field, or many.
type FieldSpec struct {
	ID   FieldID
	Name string // in lower-case letters
	// Wide fields are sums of 128 bits. The others are int64: the caller sees to it that they stay in it.
	Wide bool
	// Open means all numbers from ID up to that of the next FieldSpec: a row has few of them. The name of
	// a field is then Name and the distance from ID.
	Open bool
}

// Of returns the kind, or nil if there is none.
func (k Kinds) Of(id KindID) *Kind {
	if int(id) >= len(k) {
		return nil
	}
	return &k[id]
}

// Field returns the description of a field, or nil if the kind has no such field.
func (k *Kind) Field(id FieldID) *FieldSpec {
	at, found := slices.BinarySearchFunc(k.Fields, id, func(s FieldSpec, id FieldID) int { return cmp.Compare(s.ID, id) })
	if !found {
		if at--; at < 0 || !k.Fields[at].Open || id == All {
			return nil
		}
	}
	return &k.Fields[at]
}

// Following returns the first name after all that begin with a prefix, or "" if there is none. One of text is UTF-8: the last
// character that has a successor is replaced by it.
func (k *Kind) Following(prefix string) string {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		if k.Binary {
			last := len(prefix) - 1
			if prefix[last] < math.MaxUint8 {
				return prefix[:last] + string([]byte{prefix[last] + 1})
			}
			size, r = 1, utf8.MaxRune
		}
		if prefix = prefix[:len(prefix)-size]; r == utf8.MaxRune {
			continue
		}
		if r++; r == 0xd800 {
			r = 0xe000 // the numbers in between are not characters
		}
		return prefix + string(r)
	}
	return ""
}
