package pebble

import (
	"io"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// merger merges the terms of rows of Sums, and of the commit count. Its name is stored in every directory and can never change.
var merger = &pebbledb.Merger{Name: "countmill.sum.v1", Merge: func(_, value []byte) (pebbledb.ValueMerger, error) {
	m := mergers.Get().(*termMerger)
	m.terms = m.terms[:0]
	return m, m.MergeNewer(value)
}}

var mergers = sync.Pool{New: func() any { return new(termMerger) }}

// A termMerger merges the terms of one row. Pebble groups them as it likes, over years.
type termMerger struct {
	terms terms
	value []byte
}

func (m *termMerger) MergeNewer(value []byte) error { return m.terms.merge(value, false) }

func (m *termMerger) MergeOlder(value []byte) error { return m.terms.merge(value, true) }

// Finish keeps terms as they are while older ones may exist. The value is valid until Close.
func (m *termMerger) Finish(includesBase bool) ([]byte, io.Closer, error) {
	m.value = m.terms.append(m.value[:0], includesBase)
	return m.value, m, nil
}

func (m *termMerger) Close() error {
	mergers.Put(m)
	return nil
}
