package pebble

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// A shardSum is the value of a shard: its count, the part of the count that was added together
// with buckets of a series, and for each index the part that was added to a group too.
//
//	8 or 16 bytes   the count; nothing was bucketed or grouped
//	9 bytes         an operand: a delta that was bucketed, and a zero byte
//	33 bytes        the count and the bucketed part, of 16 bytes each, and a zero byte
//
// Every other value ends with its kind:
//
//	operandGrouped  a delta, a byte that is 1 if it was bucketed, and the numbers of the indexes as varints
//	bothGrouped     the count and the bucketed part, and for each index its number as a varint and 16 bytes
//
// A 0 among the varints is there to give the value another length than those above.
type shardSum struct {
	count, bucketed int128
	grouped         []indexSum // by index, which rises; no sum is 0
}

type indexSum struct {
	index int64
	sum   int128
}

const (
	bucketedLen  = 9
	bucketedBoth = 33

	operandGrouped = 1
	bothGrouped    = 2
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
		return decodeGrouped(b)
	}
	if b[len(b)-1] != 0 {
		return s, fmt.Errorf("a shard of %d bytes that end with %d", len(b), b[len(b)-1])
	}
	return s, nil
}

func decodeGrouped(b []byte) (s shardSum, err error) {
	wrong := shardLenError(len(b)) // no fmt.Errorf: this runs for each operand
	if len(b) < bucketedLen+1 {
		return s, wrong
	}
	kind, rest := b[len(b)-1], b[:len(b)-1]
	switch {
	case kind == operandGrouped && rest[8] <= 1:
		s.count = fromInt64(int64(binary.BigEndian.Uint64(rest)))
		if rest[8] == 1 {
			s.bucketed = s.count
		}
		rest = rest[9:]
	case kind == bothGrouped && len(rest) > 32:
		s.count, s.bucketed = wide(rest), wide(rest[16:])
		rest = rest[32:]
	default:
		return s, wrong
	}
	for last := int64(0); len(rest) > 0; {
		number, n := binary.Uvarint(rest)
		index := int64(number)
		if rest = rest[max(n, 0):]; n > 0 && index == 0 && len(rest) == 0 && kind == operandGrouped {
			break
		}
		if n <= 0 || index <= last || kind == bothGrouped && len(rest) < 16 {
			return s, wrong
		}
		sum := s.count
		if kind == bothGrouped {
			sum, rest = wide(rest), rest[16:]
		}
		s.grouped, last = append(s.grouped, indexSum{index, sum}), index
	}
	return s, nil
}

// A shardLenError is the length of a value that cannot be a shard.
type shardLenError int

func (e shardLenError) Error() string { return fmt.Sprintf("a shard of %d bytes", int(e)) }

func wide(b []byte) int128 {
	return int128{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}
}

func appendWide(dst []byte, v int128) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, uint64(v.hi)), v.lo)
}

// appendOperand appends a delta of a fold.
func appendOperand(dst []byte, delta int64, bucketed bool, indexes []int64) []byte {
	begin := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(delta))
	if len(indexes) == 0 {
		if bucketed {
			dst = append(dst, 0)
		}
		return dst
	}
	if bucketed {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	for _, index := range indexes {
		dst = binary.AppendUvarint(dst, uint64(index))
	}
	if n := len(dst) - begin + 1; n == 16 || n == bucketedBoth {
		dst = append(dst, 0)
	}
	return append(dst, operandGrouped)
}

// encode writes one encoding for each value, whatever operands it was merged from.
func (s shardSum) encode(dst []byte) []byte {
	if len(s.grouped) == 0 && s.bucketed == (int128{}) {
		return s.count.encode(dst)
	}
	dst = appendWide(appendWide(dst, s.count), s.bucketed)
	if len(s.grouped) == 0 {
		return append(dst, 0)
	}
	for _, g := range s.grouped {
		dst = appendWide(binary.AppendUvarint(dst, uint64(g.index)), g.sum)
	}
	return append(dst, bothGrouped)
}

// plus adds o. It keeps nothing of o. A sum of 0 leaves nothing, so the order of operands does not show.
func (s *shardSum) plus(o shardSum) {
	s.count, s.bucketed = s.count.plus(o.count), s.bucketed.plus(o.bucketed)
	for _, g := range o.grouped {
		if g.sum == (int128{}) {
			continue
		}
		at, found := slices.BinarySearchFunc(s.grouped, g.index, func(a indexSum, index int64) int { return cmp.Compare(a.index, index) })
		if !found {
			s.grouped = slices.Insert(s.grouped, at, g)
			continue
		}
		if s.grouped[at].sum = s.grouped[at].sum.plus(g.sum); s.grouped[at].sum == (int128{}) {
			s.grouped = slices.Delete(s.grouped, at, at+1)
		}
	}
}

// groupedBy is the part of the count that was folded with an index.
func (s *shardSum) groupedBy(index int64) int128 {
	for _, g := range s.grouped {
		if g.index == index {
			return g.sum
		}
	}
	return int128{}
}

type shardMerger struct {
	sum shardSum
	buf [bucketedBoth]byte
}

func (m *shardMerger) MergeNewer(value []byte) error {
	v, err := decodeShard(value)
	m.sum.plus(v)
	return err
}

func (m *shardMerger) MergeOlder(value []byte) error { return m.MergeNewer(value) }

func (m *shardMerger) Finish(bool) ([]byte, io.Closer, error) {
	return m.sum.encode(m.buf[:0]), nil, nil
}

// countOf decodes only the count of a shard.
func countOf(b []byte) (int128, error) {
	switch n := len(b); {
	case n == 8, n == 16:
		return decodeSum(b)
	case n == bucketedLen, n > bucketedLen && n != bucketedBoth && b[n-1] == operandGrouped:
		return fromInt64(int64(binary.BigEndian.Uint64(b))), nil
	case n >= bucketedBoth:
		return wide(b), nil
	}
	return int128{}, shardLenError(len(b))
}
