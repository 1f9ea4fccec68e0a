package pebble

import (
	"io"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// merger merges the terms of rows of Sums, and of the commit count. Its name is stored in every directory and can never change.
var merger = &pebbledb.Merger{Name: "countmill.sum.v1", Merge: func(_, value []byte) (pebbledb.ValueMerger, error) {
	m := &termMerger{}
	m.terms = m.few[:0]
	return m, m.MergeNewer(value)
}}

// A termMerger merges the terms of one row. Pebble groups them as it likes, over years.
type termMerger struct {
	terms terms
	few   [2]term
	buf   [24]byte
}

func (m *termMerger) MergeNewer(value []byte) error { return m.terms.merge(value, false) }

func (m *termMerger) MergeOlder(value []byte) error { return m.terms.merge(value, true) }

// Finish keeps terms as they are while older ones may exist.
func (m *termMerger) Finish(includesBase bool) ([]byte, io.Closer, error) {
	return m.terms.append(m.buf[:0], includesBase), nil, nil
}
