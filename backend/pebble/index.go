package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Indexes. A shard's value has its grouped parts, so a fold by an index writes no further key but
// the groups' own. The place of a shard (store.IndexRange) is wire.Order of its counter, by which shards lie on
// disk.

// maxRemainders is the most remainders of one SetRemainders.
const maxRemainders = 1000

func (k keyspace) index(dst []byte, kind byte, index int64) []byte {
	return binary.BigEndian.AppendUint64(k.kind(dst, kind), uint64(index))
}

func (k keyspace) keyRange(dst []byte, index int64, id int) []byte {
	return binary.BigEndian.AppendUint32(k.index(dst, kindIndexRange, index), uint32(id))
}

// remainders appends the prefix of the remainders of a range.
func (k keyspace) remainders(dst []byte, index int64, id int) []byte {
	return binary.BigEndian.AppendUint32(k.index(dst, kindRemainders, index), uint32(id))
}

// rangeRecord is a range as it is stored, in JSON.
type rangeRecord struct {
	From       uint64    `json:"from"`
	To         uint64    `json:"to"`
	Retired    bool      `json:"retired,omitempty"`
	Worker     string    `json:"worker,omitempty"`
	Until      time.Time `json:"until,omitzero"`
	Round      int64     `json:"round,omitempty"`
	Read       time.Time `json:"read,omitzero"`
	Shards     int64     `json:"shards,omitempty"`
	Remainders int64     `json:"remainders,omitempty"`
	Corrected  int64     `json:"corrected,omitempty"`
}

func encodeRange(p *store.IndexRange) ([]byte, error) {
	return json.Marshal(rangeRecord{p.From, p.To, p.Retired, p.Worker, p.Until.UTC(), p.Round, p.Read.UTC(), p.Shards, p.Remainders, p.Corrected})
}

func decodeRange(index int64, id int, b []byte) (store.IndexRange, error) {
	var r rangeRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return store.IndexRange{}, fmt.Errorf("range %d of index %d: %w", id, index, err)
	}
	return store.IndexRange{
		Index: index, ID: id, From: r.From, To: r.To, Retired: r.Retired, Worker: r.Worker, Until: r.Until,
		Round: r.Round, Read: r.Read, Shards: r.Shards, Remainders: r.Remainders, Corrected: r.Corrected,
	}, nil
}

// Ranges returns the ranges by their numbers.
func (s *Store) Ranges(ctx context.Context, index int64) (ranges []store.IndexRange, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	prefix := s.keys.index(nil, kindIndexRange, index)
	err = s.each(ctx, s.db, prefix, nil, func(key, value []byte) (bool, error) {
		p, err := decodeRange(index, int(binary.BigEndian.Uint32(key[len(prefix):])), value)
		ranges = append(ranges, p)
		return true, err
	})
	return ranges, err
}

// each visits the keys with a prefix that come after after.
func (s *Store) each(ctx context.Context, from pebbledb.Reader, prefix, afterKey []byte, visit func(key, value []byte) (more bool, err error)) error {
	bounds := &pebbledb.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}
	if afterKey != nil {
		bounds.LowerBound = append(slices.Clone(afterKey), 0)
	}
	iter, err := from.NewIter(bounds)
	if err != nil {
		return err
	}
	err = ctx.Err()
	more, n := true, 0
	for ok := iter.First(); ok && more && err == nil; ok = more && iter.Next() {
		var value []byte
		if value, err = iter.ValueAndErr(); err == nil {
			more, err = visit(iter.Key(), value)
		}
		if n++; n%1000 == 0 && err == nil {
			err = ctx.Err()
		}
	}
	return errors.Join(err, iter.Error(), iter.Close())
}

// isStored reports whether the range is in the database exactly so.
func (s *Store) isStored(p *store.IndexRange) error {
	found, exists, err := get(s.db, s.keys.keyRange(nil, p.Index, p.ID), func(b []byte) (store.IndexRange, error) { return decodeRange(p.Index, p.ID, b) })
	switch {
	case err != nil:
		return err
	case !exists || !found.Same(p):
		return fmt.Errorf("range %d: %w", p.ID, store.ErrChanged)
	}
	return nil
}

// SwapRanges replaces ranges in one synced batch.
func (s *Store) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	return s.change(ctx, func(b *pebbledb.Batch, _ time.Time) error {
		if len(old) == 0 && len(next) > 0 && s.settings.rules().Numbered(next[0].Index) == nil {
			return fmt.Errorf("index %d is gone: %w", next[0].Index, store.ErrNoIndex)
		}
		for i := range old {
			if err := s.isStored(&old[i]); err != nil {
				return err
			}
			if err := b.Delete(s.keys.keyRange(nil, old[i].Index, old[i].ID), nil); err != nil {
				return err
			}
		}
		for i := range next {
			p := &next[i]
			key := s.keys.keyRange(nil, p.Index, p.ID)
			if !slices.ContainsFunc(old, func(o store.IndexRange) bool { return o.ID == p.ID }) {
				if _, exists, err := get(s.db, key, func([]byte) (struct{}, error) { return struct{}{}, nil }); err != nil || exists {
					return errors.Join(err, fmt.Errorf("range %d exists: %w", p.ID, store.ErrChanged))
				}
			}
			value, err := encodeRange(p)
			if err != nil {
				return err
			}
			if err := b.Set(key, value, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Ungrouped reads a page from a snapshot of its own.
func (s *Store) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (page store.UngroupedPage, err error) {
	v := s.View().(*view)
	defer v.Close()
	if err := s.enter(); err != nil {
		return page, err
	}
	defer s.closing.RUnlock()
	if err := v.pin(ctx); err != nil {
		return page, err
	}
	page.At = v.at
	page.Next, err = s.eachShard(ctx, v.snapshot, x, p, from, limit, func(_ []byte, place uint64, counter string, sum shardSum) error {
		page.Shards, page.Place = page.Shards+1, place
		if remainder := sum.count.plus(sum.groupedBy(x.Number).negative()); remainder != (int128{}) {
			page.Remainders = append(page.Remainders, store.Ungrouped{Counter: counter, Remainder: remainder.exact()})
		}
		return nil
	})
	return page, err
}

// eachShard visits at most limit shards of a range whose counters begin as the index says, and examines at most
// maxScanned. It leaves out shards that no look-up finds: they are in no total, so no group may have them. It returns the start of the next page: the last key, without what all shards' keys begin
// with.
func (s *Store) eachShard(ctx context.Context, reader pebbledb.Reader, x *store.Index, p *store.IndexRange, from string, limit int,
	visit func(key []byte, place uint64, counter string, sum shardSum) error,
) (next string, err error) {
	if p.Retired {
		return "", nil
	}
	begin := s.keys.kind(nil, kindShard)
	bounds := &pebbledb.IterOptions{LowerBound: binary.BigEndian.AppendUint64(slices.Clone(begin), p.From), UpperBound: after(begin)}
	if p.To < math.MaxUint64 {
		bounds.UpperBound = binary.BigEndian.AppendUint64(slices.Clone(begin), p.To+1)
	}
	if from != "" {
		bounds.LowerBound = append(append(slices.Clone(begin), from...), 0)
	}
	iter, err := reader.NewIter(bounds)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	prefix, visited, scanned, last := []byte(x.Prefix()), 0, 0, []byte(nil)
	for ok := iter.First(); ok; ok = iter.Next() {
		if scanned++; visited == limit || scanned > maxScanned {
			return string(last), nil
		}
		if scanned%1000 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		const order, number = 8, 2
		last = append(last[:0], iter.Key()[len(begin):]...)
		if len(last) <= order+number {
			continue
		}
		name := last[order : len(last)-number]
		if !bytes.HasPrefix(name, prefix) || bytes.HasPrefix(name, []byte(countmill.GroupMark)) {
			continue
		}
		counter, place := string(name), binary.BigEndian.Uint64(last)
		if wire.Order(counter) != place || int(binary.BigEndian.Uint16(last[len(last)-number:])) >= countmill.MaxShards {
			continue
		}
		value, err := iter.ValueAndErr()
		if err != nil {
			return "", err
		}
		sum, err := decodeShard(value)
		if err != nil {
			return "", fmt.Errorf("a shard of %q: %w", counter, err)
		}
		visited++
		if err := visit(iter.Key(), place, counter, sum); err != nil {
			return "", err
		}
	}
	return "", iter.Error()
}

// SetRemainders sets a range's part of groups in one synced batch. No other change runs beside it, and no sweep.
// Folds do: they write shards of groups, and at most records, by merges.
func (s *Store) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	return s.change(ctx, func(b *pebbledb.Batch, _ time.Time) error {
		if err := s.isStored(p); err != nil {
			return err
		}
		prefix := s.keys.remainders(nil, p.Index, p.ID)
		for _, r := range remainders {
			if err := s.setRemainder(b, append(slices.Clone(prefix), r.Group...), &r); err != nil {
				return err
			}
		}
		return nil
	})
}

// setRemainder sets a range's part of a group, at key, and moves the group's remainder by the difference.
func (s *Store) setRemainder(b *pebbledb.Batch, key []byte, r *store.GroupRemainder) error {
	had, _, err := getSum(s.db, key)
	want := fromExact(r.Remainder)
	if err != nil || had == want {
		return err
	}
	if want == (int128{}) {
		err = b.Delete(key, nil)
	} else {
		err = b.Set(key, want.encode(nil), nil)
	}
	record := s.keys.named(nil, kindRemainder, r.Group)
	total, _, getErr := getSum(s.db, record)
	delta := want.plus(had.negative())
	return errors.Join(err, getErr, b.Set(record, total.plus(delta).encode(nil), nil),
		b.Merge(s.keys.named(nil, kindRecord, r.Group), encodeRecord(nil, 1), nil))
}

// RemaindersOf lists a range's parts of groups.
func (s *Store) RemaindersOf(ctx context.Context, p *store.IndexRange, afterGroup string, limit int) (remainders []store.GroupRemainder, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	prefix := s.keys.remainders(nil, p.Index, p.ID)
	var from []byte
	if afterGroup != "" {
		from = append(slices.Clone(prefix), afterGroup...)
	}
	err = s.each(ctx, s.db, prefix, from, func(key, value []byte) (bool, error) {
		sum, err := decodeSum(value)
		remainders = append(remainders, store.GroupRemainder{Group: string(key[len(prefix):]), Remainder: sum.exact()})
		return len(remainders) < limit, err
	})
	return remainders, err
}

// DropGrouped subtracts the grouped part of each shard, as it reads it. Nothing else changes it meanwhile:
// folds by the index are refused, and no two calls run at once.
func (s *Store) DropGrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (next string, err error) {
	err = s.change(ctx, func(b *pebbledb.Batch, _ time.Time) (err error) {
		next, err = s.eachShard(ctx, s.db, x, p, from, limit, func(key []byte, _ uint64, _ string, sum shardSum) error {
			grouped := sum.groupedBy(x.Number)
			if grouped == (int128{}) {
				return nil
			}
			return b.Merge(key, shardSum{grouped: []indexSum{{x.Number, grouped.negative()}}}.encode(nil), nil)
		})
		return err
	})
	return next, err
}

// DropGroups removes groups in one synced batch. ChangeRules waits meanwhile, so no later index has them.
func (s *Store) DropGroups(ctx context.Context, x *store.Index, limit int) (dropped int, err error) {
	err = s.change(ctx, func(b *pebbledb.Batch, _ time.Time) error {
		if !s.settings.rules().Ended(x) { // ChangeRules waits until this is over
			return fmt.Errorf("index %q: %w", x.Name, store.ErrChanged)
		}
		groups, err := s.groupsOf(ctx, x, limit)
		if err != nil {
			return err
		}
		for _, name := range groups {
			if err := s.dropGroup(b, name); err != nil {
				return err
			}
		}
		dropped = len(groups)
		prefix := s.keys.index(nil, kindRemainders, x.Number)
		return b.DeleteRange(prefix, after(prefix), nil)
	})
	return dropped, err
}

// groupsOf lists up to limit groups of an index.
func (s *Store) groupsOf(ctx context.Context, x *store.Index, limit int) (groups []string, err error) {
	for _, prefix := range x.GroupPrefixes() {
		key := s.keys.named(nil, kindRecord, prefix)
		err := s.each(ctx, s.db, key, nil, func(key, _ []byte) (bool, error) {
			if name := string(key[len(s.keys.prefix)+1:]); x.HasGroup(name) {
				groups = append(groups, name)
			}
			return len(groups) < limit, nil
		})
		if err != nil || len(groups) >= limit {
			return groups, err
		}
	}
	return groups, nil
}

func (s *Store) dropGroup(b *pebbledb.Batch, group string) error {
	r, _, err := getRecord(s.db, s.keys.named(nil, kindRecord, group))
	if err != nil {
		return err
	}
	keys := [][]byte{s.keys.named(nil, kindRecord, group), s.keys.named(nil, kindRemainder, group), s.keys.named(nil, kindGone, group)}
	for n := range r.shards {
		keys = append(keys, s.keys.shard(nil, wire.Order(group), group, n))
	}
	for _, key := range keys {
		if err := b.Delete(key, nil); err != nil {
			return err
		}
	}
	return s.removeSeries(b, group)
}
