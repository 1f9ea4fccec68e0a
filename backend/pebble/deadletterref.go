package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The value of a dead-letter reference is its time in 8 bytes, and its parts.

func (s *Store) putDeadLetterRefs(b *pebbledb.Batch, refs []store.DeadLetterRef) error {
	for i := range refs {
		a := &refs[i]
		key := s.keys.named(nil, kindDeadLetterRef, string(a.Completion[:])+a.Key)
		value := store.AppendDeadLetterParts(binary.BigEndian.AppendUint64(nil, microseconds(a.At)), a.Parts)
		if err := b.Set(key, value, nil); err != nil {
			return err
		}
	}
	return nil
}

// DeadLetterRefs returns the notes under these completion markers.
func (s *Store) DeadLetterRefs(ctx context.Context, completions []wire.PartID) ([]store.DeadLetterRef, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	var all []store.DeadLetterRef
	for _, completion := range completions {
		err := scan(s.db, s.keys, kindDeadLetterRef, string(completion[:]), "", func(name string, value []byte) (bool, error) {
			a, err := decodeDeadLetterRef(name, value)
			if err != nil {
				return false, err
			}
			all = append(all, a)
			return true, ctx.Err()
		})
		if err != nil {
			return nil, err
		}
	}
	return all, ctx.Err()
}

func decodeDeadLetterRef(name string, value []byte) (a store.DeadLetterRef, err error) {
	if len(name) < len(a.Completion) || len(value) < 8 {
		return a, fmt.Errorf("a dead-letter reference has a key of %d bytes and a value of %d", len(name), len(value))
	}
	a = store.DeadLetterRef{Completion: wire.PartID([]byte(name[:16])), Key: name[16:], At: moment(binary.BigEndian.Uint64(value))}
	a.Parts, err = store.ParseDeadLetterParts(value[8:])
	return a, err
}

// sweepDeadLetterRefs drops the dead-letter references whose completion markers are gone, or never come.
func (s *Store) sweepDeadLetterRefs(b *pebbledb.Batch, forgetBefore time.Time) error {
	return s.scan(kindDeadLetterRef, "", func(name string, value []byte) (more bool, err error) {
		a, err := decodeDeadLetterRef(name, value)
		if err == nil && a.At.Add(store.MarkerSlack).Before(forgetBefore) {
			err = b.Delete(s.keys.named(nil, kindDeadLetterRef, name), nil)
		}
		return err == nil, err
	})
}
