package pebble

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The value of a counter's day is pairs of a slot and a sum, by ascending slots. Each pair is the
// distance from the slot before as an unsigned varint, and the sum in zigzag form as a varint of up
// to 128 bits. A sum of 0 is left out. Merging joins the pairs and adds the sums of equal slots, so
// every grouping of operands gives the same bytes.

// A slot is a minute of the day, or quarterSlots and the number of a quarter hour of the day.
type slot uint16

const (
	quarterSlots = slot(store.DayMinutes)
	slotsEnd     = quarterSlots + store.DayMinutes/store.QuarterMinutes
)

func (s slot) quarter() bool { return s >= quarterSlots }

// minute returns the first minute of the slot, from the beginning of the day.
func (s slot) minute() wire.Minute {
	if s.quarter() {
		return wire.Minute(s-quarterSlots) * store.QuarterMinutes
	}
	return wire.Minute(s)
}

// joined returns the slot of the quarter hour.
func (s slot) joined() slot {
	if s.quarter() {
		return s
	}
	return quarterSlots + s/store.QuarterMinutes
}

type slotSum struct {
	slot slot
	sum  int128
}

// appendBucket appends a pair; apart is the distance from the slot before.
func appendBucket(dst []byte, apart uint64, sum int128) []byte {
	return appendInt128(binary.AppendUvarint(dst, apart), sum)
}

func encodeSeries(dst []byte, pairs []slotSum) []byte {
	last := slot(0)
	for _, p := range pairs {
		if p.sum == (int128{}) {
			continue
		}
		dst = appendBucket(dst, uint64(p.slot-last), p.sum)
		last = p.slot
	}
	return dst
}

func decodeSeries(b []byte) ([]slotSum, error) { return appendSeries(nil, b) }

// appendSeries appends the pairs of a value.
func appendSeries(dst []slotSum, b []byte) ([]slotSum, error) {
	first, at := len(dst), uint64(0)
	for len(b) > 0 {
		apart, n := binary.Uvarint(b)
		if n <= 0 || apart >= uint64(slotsEnd) || apart == 0 && len(dst) > first {
			return dst, fmt.Errorf("a series of %d bytes with a wrong slot", len(b))
		}
		sum, m := readInt128(b[n:])
		if at += apart; m <= 0 || at >= uint64(slotsEnd) {
			return dst, fmt.Errorf("a series of %d bytes with a wrong sum", len(b))
		}
		dst, b = append(dst, slotSum{slot(at), sum}), b[n+m:]
	}
	return dst, nil
}

// appendInt128 appends a in zigzag form as a varint.
func appendInt128(dst []byte, a int128) []byte {
	sign := uint64(a.hi >> 63)
	hi, lo := (uint64(a.hi)<<1|a.lo>>63)^sign, a.lo<<1^sign
	for hi > 0 || lo >= 0x80 {
		dst = append(dst, byte(lo)|0x80)
		lo, hi = lo>>7|hi<<57, hi>>7
	}
	return append(dst, byte(lo))
}

// readInt128 returns the number and its length, or a length of 0 for bytes that are no number.
func readInt128(b []byte) (a int128, n int) {
	var hi, lo uint64
	for shift := uint(0); n < len(b) && shift < 128+7; shift += 7 {
		c := b[n]
		n++
		low := uint64(c & 0x7f)
		switch {
		case shift < 64:
			lo |= low << shift
			if shift > 57 {
				hi |= low >> (64 - shift)
			}
		default:
			hi |= low << (shift - 64)
		}
		if c < 0x80 {
			sign := -(lo & 1)
			return int128{int64(hi>>1 ^ sign), (lo>>1 | hi<<63) ^ sign}, n
		}
	}
	return int128{}, 0
}

// A seriesMerger joins operands. Most operands have one pair, of a slot that is there already.
type seriesMerger struct {
	pairs   []slotSum
	operand []slotSum
}

func (m *seriesMerger) MergeNewer(value []byte) (err error) {
	if m.operand, err = appendSeries(m.operand[:0], value); err != nil {
		return err
	}
	for _, p := range m.operand {
		m.add(p)
	}
	return nil
}

func (m *seriesMerger) add(p slotSum) {
	at, found := slices.BinarySearchFunc(m.pairs, p.slot, func(x slotSum, s slot) int { return cmp.Compare(x.slot, s) })
	if found {
		m.pairs[at].sum = m.pairs[at].sum.plus(p.sum)
		return
	}
	m.pairs = slices.Insert(m.pairs, at, p)
}

func (m *seriesMerger) MergeOlder(value []byte) error { return m.MergeNewer(value) }

func (m *seriesMerger) Finish(bool) ([]byte, io.Closer, error) {
	return encodeSeries(nil, m.pairs), nil, nil
}
