package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// The part of a shard's count that was folded by an index is a field of the shard, and changes with the count. So the difference of
// the two moves only with folds without the index.

// groupedBy is the field of a shard with its grouped part of an index.
func groupedBy(index int64) engine.FieldID { return fieldGrouped + engine.FieldID(index) }

func rangeKey(index int64, id int) engine.Key {
	return engine.Key{Kind: kindRange, Name: strconv.FormatInt(index, 10), Part: uint32(id)}
}

func keyOfRange(p *store.IndexRange) engine.Key { return rangeKey(p.Index, p.ID) }

func rangeOf(r *engine.Row) (p store.IndexRange, err error) {
	if err = json.Unmarshal(r.Data, &p); err != nil {
		err = fmt.Errorf("range %d of index %s: %w", r.Key.Part, r.Key.Name, err)
	}
	return p, err
}

// Ranges scans the ranges of an index.
func (s *Store) Ranges(ctx context.Context, index int64) ([]store.IndexRange, error) {
	v := s.view()
	defer v.Close()
	return list(ctx, v, engine.Range{Kind: kindRange, From: rangeKey(index, 0), To: rangeKey(index, 1<<24-1)}, 0, rangeOf, engine.Data)
}

// isStored returns store.ErrChanged unless the row has the range. A transaction that has read the row fails if another one changes
// it: so until its end the range is its worker's.
func isStored(p *store.IndexRange, r *engine.Row) error {
	if !r.Exists {
		return fmt.Errorf("range %d is gone: %w", p.ID, store.ErrChanged)
	}
	data, err := json.Marshal(p)
	if err == nil && !bytes.Equal(data, r.Data) {
		err = fmt.Errorf("range %d: %w", p.ID, store.ErrChanged)
	}
	return err
}

// SwapRanges replaces ranges in one transaction that reads them all. Of two workers that take one range, the second one finds the
// first one's, or its transaction begins again and finds it.
func (s *Store) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	if len(old) > store.MaxSwapped || len(next) > store.MaxSwapped {
		return fmt.Errorf("%w: %d ranges for %d (limit: %d)", store.ErrRefused, len(next), len(old), store.MaxSwapped)
	}
	has := func(ranges []store.IndexRange, key engine.Key) bool {
		return slices.ContainsFunc(ranges, func(p store.IndexRange) bool { return keyOfRange(&p) == key })
	}
	var keys []engine.Key
	for i := range old {
		keys = append(keys, keyOfRange(&old[i]))
	}
	for i := range next {
		if key := keyOfRange(&next[i]); !has(old, key) {
			keys = append(keys, key)
		}
	}
	return s.transact(ctx, false, func(tx engine.Tx) error {
		if len(old) == 0 && len(next) > 0 {
			switch m, err := s.metaIn(ctx, tx); {
			case err != nil:
				return err
			case m.Settings.Rules.Numbered(next[0].Index) == nil:
				return fmt.Errorf("index %d is gone: %w", next[0].Index, store.ErrNoIndex)
			}
		}
		rows, err := s.get(ctx, tx, keys, engine.Data)
		if err != nil {
			return err
		}
		for i := range old {
			if err := isStored(&old[i], &rows[i]); err != nil {
				return err
			}
			if !has(next, keys[i]) {
				remove(tx, keys[i])
			}
		}
		for i := range rows[len(old):] {
			if rows[len(old)+i].Exists {
				return fmt.Errorf("range %d exists: %w", keys[len(old)+i].Part, store.ErrChanged)
			}
		}
		for i := range next {
			data, err := json.Marshal(&next[i])
			if err != nil {
				return err
			}
			tx.Change(&engine.Change{Key: keyOfRange(&next[i]), Data: data})
		}
		return nil
	})
}

// maxExamined is the most keys that one page looks at.
const maxExamined = 10_000

// shardsOf lists up to limit shards of a range whose counters begin as those of the index, and returns where the next page begins. It
// looks at keys alone: the shards of other counters cost no read. It leaves out shards that no look-up finds: their counts are in no
// total, and no group may have them.
func (v *view) shardsOf(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (keys []engine.Key, next string, err error) {
	if p.Retired {
		return nil, "", nil
	}
	r := engine.Range{Kind: kindShard, From: engine.Key{Place: p.From}, Page: limit}
	if p.To != math.MaxUint64 {
		r.To = engine.Key{Place: p.To + 1}
	}
	if from != "" {
		if _, err := fmt.Sscanf(from, "%016x%08x", &r.From.Place, &r.From.Part); err != nil || len(from) < 24 {
			return nil, "", fmt.Errorf("%w: %q is no start of a page", store.ErrRefused, from)
		}
		r.From.Name, r.After = from[24:], true
	}
	rows := v.Scan(ctx, r)
	defer rows.Close()
	for examined := 1; ; examined++ {
		row := rows.Next()
		if row == nil {
			return keys, "", rows.Err()
		}
		if k := row.Key; strings.HasPrefix(k.Name, x.Prefix()) && !countmill.IsGroup(k.Name) && v.store.lookedUp(k) {
			keys = append(keys, keyOf(row))
		}
		if len(keys) == limit || examined == maxExamined {
			return keys, fmt.Sprintf("%016x%08x%s", row.Key.Place, row.Key.Part, row.Key.Name), nil
		}
	}
}

func (s *Store) lookedUp(k engine.Key) bool {
	return k.Part < countmill.MaxShards && k == s.shardKey(k.Name, int(k.Part))
}

// Ungrouped reads the keys of a page, and then the counts, all at one moment. It changes nothing: two workers may read one range,
// and a worker past its lease reads in vain, because SetRemainders refuses it.
//
//   - A fold by the index, also one in flight, moves count and grouped part together: the remainder is the same before and
//     after.
//   - A fold without the index is over after Index.Since.
//   - A growth writes no shard. A shard that a later fold makes is all grouped.
//   - A sweep keeps the counters of the index.
func (s *Store) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (page store.UngroupedPage, err error) {
	v := s.view()
	defer v.Close()
	keys, next, err := v.shardsOf(ctx, x, p, from, limit)
	if err != nil {
		return page, err
	}
	if _, err := v.Get(ctx, nil); err != nil { // the moment of a range without shards
		return page, err
	}
	page.At, page.Next, page.Shards = v.At(), next, len(keys)
	if len(keys) > 0 {
		page.Place = keys[len(keys)-1].Place
	}
	err = s.each(ctx, v, keys, []engine.FieldID{fieldCount, groupedBy(x.Number)}, func(i int, r *engine.Row) {
		if remainder := r.Int(fieldCount).Sub(r.Int(groupedBy(x.Number))); remainder != (engine.Int{}) {
			page.Remainders = append(page.Remainders, store.Ungrouped{Counter: keys[i].Name, Remainder: remainder})
		}
	})
	return page, err
}

// dropLot is the number of shards of one commit of DropGrouped. A fold of one of them may wait for it.
const dropLot = 100

// DropGrouped removes the grouped part from the shards of a page, by updates that name no other field: a fold of the shard comes
// before or after. Nobody adds to the part any more, and no later index has its number. So a repeat, a second worker and one
// past its lease remove nothing else. A sweep keeps the counters of the index until the index is gone.
func (s *Store) DropGrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (next string, err error) {
	v := s.view()
	defer v.Close()
	keys, next, err := v.shardsOf(ctx, x, p, from, limit)
	if err != nil {
		return "", err
	}
	var changes []engine.Change
	err = s.each(ctx, v, keys, []engine.FieldID{groupedBy(x.Number)}, func(i int, r *engine.Row) {
		if r.Int(groupedBy(x.Number)) != (engine.Int{}) {
			changes = append(changes, engine.Change{Key: keys[i], Op: engine.Update, Unset: []engine.FieldID{groupedBy(x.Number)}})
		}
	})
	for lot := range slices.Chunk(changes, dropLot) {
		if err == nil {
			err = s.commit(ctx, false, lot)
		}
	}
	if err != nil {
		return "", err
	}
	return next, nil
}

// remainderPrefix begins the names of a range's remainders. Behind it is the group. No other index ever has the number.
func remainderPrefix(index int64, id int) string { return fmt.Sprintf("%d:%d:", index, id) }

func remainderKey(p *store.IndexRange, group string) engine.Key {
	return engine.Key{Kind: kindRemainder, Name: remainderPrefix(p.Index, p.ID) + group}
}

// SetRemainders sets a range's part of groups in one transaction that reads the range and the remainders that it had. It moves the record
// of each group by the difference, by additions without a look: so it does not wait for growths of the record, nor for workers with
// other ranges of the group.
//
//   - A worker past its lease: another one has changed the range, so this one finds it changed.
//   - A repeat, also of a call that was maybe applied: it finds the remainders that it sets, and moves nothing.
//   - A fold, also one in flight: it writes shards of the group, and of its record at most the number of shards.
//   - A sweep, a reset or a growth by a person: these read the record in a transaction, which fails if the remainder moves.
//   - A sweep of a deleted group takes the record with its remainder, which its baseline has. A later difference makes a new record with
//     the difference alone, as a later fold does.
func (s *Store) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	defer s.changes.Add(1)
	if len(remainders) > s.facts.remainders {
		return fmt.Errorf("%w: %d remainders (limit: %d)", store.ErrRefused, len(remainders), s.facts.remainders)
	}
	keys := []engine.Key{keyOfRange(p)}
	for i := range remainders {
		keys = append(keys, remainderKey(p, remainders[i].Group))
	}
	return s.transact(ctx, false, func(tx engine.Tx) error {
		rows, err := s.get(ctx, tx, keys, engine.All)
		if err != nil {
			return err
		}
		if err := isStored(p, &rows[0]); err != nil {
			return err
		}
		for i := range remainders {
			s.setRemainder(tx, &rows[1+i], &remainders[i])
		}
		return nil
	})
}

// setRemainder makes a remainder the one of its range, and moves the group's record.
func (s *Store) setRemainder(tx engine.Tx, r *engine.Row, set *store.GroupRemainder) {
	had := r.Int(fieldRemainder)
	if had == set.Remainder {
		return
	}
	if set.Remainder == (engine.Int{}) {
		remove(tx, r.Key)
	} else {
		tx.Change(&engine.Change{Key: r.Key, Set: []engine.Field{{ID: fieldRemainder, Value: set.Remainder}}})
	}
	record := growth(set.Group, s.cfg.Shards)
	record.Add = []engine.Field{{ID: fieldRemainder, Value: set.Remainder.Sub(had)}}
	tx.Change(record)
}

// RemaindersOf scans the names of remainders.
func (s *Store) RemaindersOf(ctx context.Context, p *store.IndexRange, after string, limit int) ([]store.GroupRemainder, error) {
	v := s.view()
	defer v.Close()
	prefix := remainderPrefix(p.Index, p.ID)
	r := engine.Range{Kind: kindRemainder, Prefix: prefix, From: remainderKey(p, after), After: true, Page: limit}
	return list(ctx, v, r, limit, func(row *engine.Row) (store.GroupRemainder, error) {
		return store.GroupRemainder{Group: strings.Clone(row.Key.Name[len(prefix):]), Remainder: row.Int(fieldRemainder)}, nil
	}, fieldRemainder)
}
