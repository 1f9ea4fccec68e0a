package pebble

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"
)

// A record is a counter's record, or a change of it: a growth (8 bytes) or a reset (32 bytes). Merging
// two records gives one of these again, however Pebble groups them:
//
//	older    newer    together
//	growth   growth   a growth to the larger number
//	reset    growth   that reset, and the counter exists again
//	growth   reset    the reset
//	reset    reset    the newer one
//
// The result always has the larger number of shards.
type record struct {
	shards   int
	wasReset bool
	store.ResetState
}

func (r record) then(newer record) record {
	shards := max(r.shards, newer.shards)
	if !newer.wasReset {
		newer = r
		newer.DeletedAt = time.Time{}
	}
	newer.shards = shards
	return newer
}

func (r record) reset() store.ResetState {
	return store.ResetState{Baseline: r.Baseline, ResetAt: r.ResetAt, DeletedAt: r.DeletedAt}
}

// encodeRecord encodes a growth, which is also the record of a counter that was never reset.
func encodeRecord(dst []byte, shards int) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(shards))
}

func (r record) encode(dst []byte) []byte {
	dst = encodeRecord(dst, r.shards)
	if !r.wasReset {
		return dst
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Baseline.Hi))
	dst = binary.BigEndian.AppendUint64(dst, r.Baseline.Lo)
	dst = binary.BigEndian.AppendUint64(dst, microseconds(r.ResetAt))
	return binary.BigEndian.AppendUint64(dst, microseconds(r.DeletedAt))
}

func decodeRecord(b []byte) (record, error) {
	switch len(b) {
	case 8:
		return record{shards: int(binary.BigEndian.Uint64(b))}, nil
	case 40:
		return record{shards: int(binary.BigEndian.Uint64(b)), wasReset: true, ResetState: store.ResetState{
			Baseline: sums.Int{Hi: int64(binary.BigEndian.Uint64(b[8:])), Lo: binary.BigEndian.Uint64(b[16:])},
			ResetAt:  moment(binary.BigEndian.Uint64(b[24:])), DeletedAt: moment(binary.BigEndian.Uint64(b[32:])),
		}}, nil
	}
	return record{}, fmt.Errorf("a record of %d bytes", len(b))
}

// microseconds returns the microseconds since 1970, or 0 for the zero time.
func microseconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

func moment(us uint64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(us)).UTC()
}

type recordMerger struct {
	record
	any bool
	buf [32]byte
}

func (m *recordMerger) MergeNewer(value []byte) error {
	newer, err := decodeRecord(value)
	if m.any {
		newer = m.then(newer)
	}
	m.record, m.any = newer, true
	return err
}

func (m *recordMerger) MergeOlder(value []byte) error {
	older, err := decodeRecord(value)
	m.record = older.then(m.record)
	return err
}

func (m *recordMerger) Finish(bool) ([]byte, io.Closer, error) {
	return m.encode(m.buf[:0]), nil, nil
}
