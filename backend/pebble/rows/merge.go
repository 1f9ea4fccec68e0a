package rows

import (
	"io"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/backend/pebble"
)

// form is what this package writes into a directory. Its name is stored in every database and can never change.
var form = pebble.NewForm(4, "countmill.rows.v1", func(_, value []byte) (pebbledb.ValueMerger, error) {
	return newMerger(value)
})

// A merger merges the terms of a row of Sums. Pebble groups them as it likes, over years.
type merger struct {
	terms terms
	few   [2]term
	buf   [24]byte
}

func newMerger(value []byte) (*merger, error) {
	m := &merger{}
	m.terms = m.few[:0]
	return m, m.MergeNewer(value)
}

func (m *merger) MergeNewer(value []byte) error { return m.terms.merge(value, false) }

func (m *merger) MergeOlder(value []byte) error { return m.terms.merge(value, true) }

// Finish keeps terms as they are while older ones may exist.
func (m *merger) Finish(includesBase bool) ([]byte, io.Closer, error) {
	return m.terms.append(m.buf[:0], includesBase), nil, nil
}
