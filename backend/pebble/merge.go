package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"

	pebbledb "github.com/cockroachdb/pebble/v2"

	sums "github.com/countmill/countmill/store/int128"
)

// mergerName is stored in every database and can never change.
const mergerName = "countmill.sum.v1"

// merger adds up shards and merges records. Pebble groups the operands of a key as it likes, over
// years, so both operations must be associative. A sum beyond int64 is therefore kept in 128 bits
// instead of saturating: later deltas can bring it back to the right number.
var merger = newMerger(mergerName, func(key, value []byte) (pebbledb.ValueMerger, error) {
	switch kind := kindOf(key); kind {
	case kindShard:
		m := &shardMerger{}
		return m, m.MergeNewer(value)
	case kindRecord:
		m := &recordMerger{}
		return m, m.MergeNewer(value)
	case kindSeries:
		m := &seriesMerger{}
		return m, m.MergeNewer(value)
	default:
		return nil, fmt.Errorf("merge into a key of kind %q", kind)
	}
})

// newMerger returns a merger that counts commits too.
func newMerger(name string, merge func(key, value []byte) (pebbledb.ValueMerger, error)) *pebbledb.Merger {
	return &pebbledb.Merger{Name: name, Merge: func(key, value []byte) (pebbledb.ValueMerger, error) {
		if bytes.Equal(key, commitsKey) {
			m := &sumMerger{}
			return m, m.MergeNewer(value)
		}
		return merge(key, value)
	}}
}

// An int128 is a sum in two's complement.
type int128 struct {
	hi int64
	lo uint64
}

func fromInt64(v int64) int128 { return int128{v >> 63, uint64(v)} }

func (a int128) plus(b int128) int128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return int128{a.hi + b.hi + int64(carry), lo}
}

func (a int128) negative() int128 {
	lo, borrow := bits.Sub64(0, a.lo, 0)
	return int128{-a.hi - int64(borrow), lo}
}

func (a int128) fits64() bool { return a.hi == int64(a.lo)>>63 }

// total returns the sum as an int64, and whether it overflowed: then total returns the nearest end.
func (a int128) total() (v int64, overflow bool) {
	switch v = int64(a.lo); {
	case !a.fits64() && a.hi < 0:
		return math.MinInt64, true
	case !a.fits64():
		return math.MaxInt64, true
	default:
		return v, false
	}
}

// exact and fromExact convert sums to and from those of package store.
func (a int128) exact() sums.Int { return sums.Int{Hi: a.hi, Lo: a.lo} }

func fromExact(a sums.Int) int128 { return int128{a.Hi, a.Lo} }

// encode writes 8 bytes if the sum fits an int64, otherwise 16: each sum has one encoding.
func (a int128) encode(dst []byte) []byte {
	if !a.fits64() {
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.hi))
	}
	return binary.BigEndian.AppendUint64(dst, a.lo)
}

func decodeSum(b []byte) (int128, error) {
	switch len(b) {
	case 8:
		return fromInt64(int64(binary.BigEndian.Uint64(b))), nil
	case 16:
		return int128{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}, nil
	}
	return int128{}, fmt.Errorf("a sum of %d bytes", len(b))
}

type sumMerger struct {
	sum int128
	buf [16]byte
}

func (m *sumMerger) MergeNewer(value []byte) error {
	v, err := decodeSum(value)
	m.sum = m.sum.plus(v)
	return err
}

func (m *sumMerger) MergeOlder(value []byte) error { return m.MergeNewer(value) }

func (m *sumMerger) Finish(bool) ([]byte, io.Closer, error) {
	return m.sum.encode(m.buf[:0]), nil, nil
}
