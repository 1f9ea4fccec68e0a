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

// The value of an aside is its time in 8 bytes, and its parts.

func (s *Store) putAsides(b *pebbledb.Batch, asides []store.Aside) error {
	for i := range asides {
		a := &asides[i]
		key := s.keys.named(nil, kindAside, string(a.Tail[:])+a.Letter)
		value := store.AppendAsideParts(binary.BigEndian.AppendUint64(nil, microseconds(a.At)), a.Parts)
		if err := b.Set(key, value, nil); err != nil {
			return err
		}
	}
	return nil
}

// Asides returns the notes under these tails.
func (s *Store) Asides(ctx context.Context, tails []wire.PartID) ([]store.Aside, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	var all []store.Aside
	for _, tail := range tails {
		err := scan(s.db, s.keys, kindAside, string(tail[:]), "", func(name string, value []byte) (bool, error) {
			a, err := decodeAside(name, value)
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

func decodeAside(name string, value []byte) (a store.Aside, err error) {
	if len(name) < len(a.Tail) || len(value) < 8 {
		return a, fmt.Errorf("an aside has a key of %d bytes and a value of %d", len(name), len(value))
	}
	a = store.Aside{Tail: wire.PartID([]byte(name[:16])), Letter: name[16:], At: moment(binary.BigEndian.Uint64(value))}
	a.Parts, err = store.ParseAsideParts(value[8:])
	return a, err
}

// sweepAsides drops the asides whose tails are gone, or never come.
func (s *Store) sweepAsides(b *pebbledb.Batch, forgetBefore time.Time) error {
	return s.scan(kindAside, "", func(name string, value []byte) (more bool, err error) {
		a, err := decodeAside(name, value)
		if err == nil && a.At.Add(store.MarkerSlack).Before(forgetBefore) {
			err = b.Delete(s.keys.named(nil, kindAside, name), nil)
		}
		return err == nil, err
	})
}
