package pebble

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A shardSum is the value of a shard: its count, and the part of the count that was added together
// with buckets of a series.
//
//	8 or 16 bytes   the count; nothing was bucketed
//	9 bytes         an operand: a delta that was bucketed, and a zero byte
//	33 bytes        the count and the bucketed part, of 16 bytes each, and a zero byte
type shardSum struct {
	count, bucketed int128
}

const (
	bucketedLen  = 9
	bucketedBoth = 33
)

func decodeShard(b []byte) (s shardSum, err error) {
	switch len(b) {
	case bucketedLen:
		s.count = fromInt64(int64(binary.BigEndian.Uint64(b)))
		s.bucketed = s.count
	case bucketedBoth:
		s.count, s.bucketed = wide(b), wide(b[16:])
	case 8, 16:
		s.count, err = decodeSum(b)
		return s, err
	default:
		return s, fmt.Errorf("a shard of %d bytes", len(b))
	}
	if b[len(b)-1] != 0 {
		return s, fmt.Errorf("a shard of %d bytes that end with %d", len(b), b[len(b)-1])
	}
	return s, nil
}

func wide(b []byte) int128 {
	return int128{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}
}

// encode writes one encoding for each value, whatever operands it was merged from.
func (s shardSum) encode(dst []byte) []byte {
	if s.bucketed == (int128{}) {
		return s.count.encode(dst)
	}
	for _, v := range []int128{s.count, s.bucketed} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.hi))
		dst = binary.BigEndian.AppendUint64(dst, v.lo)
	}
	return append(dst, 0)
}

type shardMerger struct {
	sum shardSum
	buf [bucketedBoth]byte
}

func (m *shardMerger) MergeNewer(value []byte) error {
	v, err := decodeShard(value)
	m.sum.count, m.sum.bucketed = m.sum.count.plus(v.count), m.sum.bucketed.plus(v.bucketed)
	return err
}

func (m *shardMerger) MergeOlder(value []byte) error { return m.MergeNewer(value) }

func (m *shardMerger) Finish(bool) ([]byte, io.Closer, error) {
	return m.sum.encode(m.buf[:0]), nil, nil
}
