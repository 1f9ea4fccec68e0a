package engine

import (
	"cmp"
	"strings"
)

// A Key is the whole identity of a row. No field is part of it, so the same Key with another Due is the same row.
type Key struct {
	// Place is a number by which a caller spreads rows, or keeps them together: see Limits.Spread.
	Place uint64
	Name  string
	// Part, below 2^24, distinguishes the rows of one name.
	Part uint32
	Kind KindID
}

// Compare orders keys by kind, place, name and part. Names have the order of their bytes.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Place, o.Place), strings.Compare(k.Name, o.Name), cmp.Compare(k.Part, o.Part))
}

// CompareNames orders keys by kind, name, place and part.
func (k Key) CompareNames(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), strings.Compare(k.Name, o.Name), cmp.Compare(k.Place, o.Place), cmp.Compare(k.Part, o.Part))
}

// A Range is an interval of the keys of a kind, in one of two orders.
type Range struct {
	Kind KindID
	// ByName is the order of Key.CompareNames. It needs Kind.ByName and Limits.ByName. The other order is that of
	// Key.Compare.
	ByName bool
	// Prefix begins all names, and is text as they are. It needs ByName, or a kind without places.
	Prefix string
	// From is the first key, and To the first key after the range; a zero To is the end. Their Kind does not count.
	From, To Key
	// After leaves From itself out: a further page begins at the last key of the page before.
	After bool
	// Reverse begins at the end. It needs Kind.ByName, and ByName where Limits has it.
	Reverse bool
	// Page is about how many rows the caller takes before it pauses or ends; 0 if it takes all.
	Page int
}

// Compare orders keys as the range does.
func (r *Range) Compare(a, b Key) int {
	a.Kind, b.Kind = r.Kind, r.Kind
	if r.ByName {
		return a.CompareNames(b)
	}
	return a.Compare(b)
}

// Has reports whether a key of the kind is in the range.
func (r *Range) Has(k Key) bool {
	from := r.Compare(k, r.From)
	return (from > 0 || from == 0 && !r.After) && (r.To == Key{} || r.Compare(k, r.To) < 0) && strings.HasPrefix(k.Name, r.Prefix)
}
