package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// A sequence has 24 bytes: its last value, the restores of the directory when that was written, and the
// time of its deletion. Its markers have a reset's form: first value, count and time.
const sequenceLen = 24

// A sequenceRecord is the record of a sequence.
type sequenceRecord struct {
	store.SequenceState
	restores int64
}

func (r sequenceRecord) encode(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Last))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.restores))
	return binary.BigEndian.AppendUint64(dst, microseconds(r.Deleted))
}

func decodeSequence(b []byte) (r sequenceRecord, err error) {
	if len(b) != sequenceLen {
		return r, fmt.Errorf("a sequence of %d bytes", len(b))
	}
	r.Last, r.restores = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))
	r.Deleted = moment(binary.BigEndian.Uint64(b[16:]))
	return r, nil
}

// getSequence returns the state of a sequence in this directory. Each restore since the last write has
// moved it, and also a sequence without a record: the lost process may have begun it.
func (s *Store) getSequence(name string) (store.SequenceState, error) {
	r, _, err := get(s.db, s.keys.named(nil, kindSequence, name), decodeSequence)
	if err != nil {
		return store.SequenceState{}, fmt.Errorf("sequence %q: %w", name, err)
	}
	r.Skip(s.restores - r.restores)
	return r.SequenceState, nil
}

func (s *Store) setSequence(b *pebbledb.Batch, name string, state store.SequenceState) error {
	return b.Set(s.keys.named(nil, kindSequence, name), sequenceRecord{state, s.restores}.encode(nil), nil)
}

// encodeGiven encodes the marker of a take.
func encodeGiven(g store.Given, t *store.Take) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(g.First))
	b = binary.BigEndian.AppendUint64(b, uint64(g.Count))
	return binary.BigEndian.AppendUint64(b, uint64(t.At.UnixMicro()))
}

func decodeGiven(id wire.PartID, b []byte) (store.Given, error) {
	if len(b) != markerLen {
		return store.Given{}, fmt.Errorf("marker %s of a sequence has %d bytes", id, len(b))
	}
	return store.Given{First: int64(binary.BigEndian.Uint64(b)), Count: int(binary.BigEndian.Uint64(b[8:]))}, nil
}

// Sequence waits until every value that it covers is on disk.
func (s *Store) Sequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	if err := s.enter(); err != nil {
		return store.SequenceState{}, err
	}
	defer s.closing.RUnlock()
	if err := s.lockMarking(ctx); err != nil {
		return store.SequenceState{}, err
	}
	defer s.unlockMarking()
	state, err := s.getSequence(sequence)
	if err != nil {
		return state, err
	}
	return state, s.isGuarded()
}

// DeleteSequence keeps the record, because that has the last value.
func (s *Store) DeleteSequence(ctx context.Context, sequence string) (before store.SequenceState, err error) {
	err = s.change(ctx, func(b *pebbledb.Batch, _ time.Time) error {
		if before, err = s.getSequence(sequence); err != nil || !before.Exists() {
			return err
		}
		after := before
		after.Deleted = s.cfg.clock()
		return s.setSequence(b, sequence, after)
	})
	return before, err
}
