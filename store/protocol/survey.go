package protocol

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// ShardsOf scans the shards of a counter.
func (s *Store) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	r := engine.Range{From: engine.Key{Name: counter}, To: engine.Key{Name: counter, Place: math.MaxUint64, Part: 1<<24 - 1}}
	if !s.limits.ByName {
		r.From.Place, r.To.Place = s.place(counter), s.place(counter)
	}
	page, err := s.survey(ctx, "", r, math.MaxInt)
	slices.SortFunc(page.Shards, func(a, b store.Shard) int { return a.Number - b.Number })
	return page, err
}

// ShardPage scans shards in the order of names or of places. The Next of a page is the last key that it looked at.
func (s *Store) ShardPage(ctx context.Context, prefix, from string, limit int) (store.ShardPage, error) {
	r := engine.Range{Page: limit}
	if s.limits.ByName {
		r.Prefix = prefix
	}
	if from != "" {
		if len(from) <= 12 || !utf8.ValidString(from[12:]) {
			return store.ShardPage{}, fmt.Errorf("%w: %q is no start of a page", store.ErrRefused, from)
		}
		r.From = engine.Key{Place: binary.BigEndian.Uint64([]byte(from)), Part: binary.BigEndian.Uint32([]byte(from[8:])), Name: from[12:]}
		r.After = true
	}
	return s.survey(ctx, prefix, r, limit)
}

// surveyed is the most shards that one page looks at. In the order of places few of them may have the prefix.
const surveyed = 20_000

// survey reads the shards of a range whose names begin with prefix, and then the records of their counters at the same moment.
func (s *Store) survey(ctx context.Context, prefix string, r engine.Range, limit int) (page store.ShardPage, err error) {
	v := s.view()
	defer v.Close()
	r.Kind, r.ByName = kindShard, s.limits.ByName
	var records []engine.Key
	rows := v.Scan(ctx, r, fieldCount)
	defer rows.Close()
	for n := 0; len(page.Shards) < limit && n < surveyed; n++ {
		row := rows.Next()
		if row == nil {
			page.Next = ""
			break
		}
		page.Next = string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, row.Key.Place), row.Key.Part)) + row.Key.Name
		if !strings.HasPrefix(row.Key.Name, prefix) {
			continue
		}
		shard := s.shardOf(row)
		if page.Shards = append(page.Shards, shard); len(records) == 0 || records[len(records)-1].Name != shard.Counter {
			records = append(records, recordKey(shard.Counter)) // shards of one counter follow each other
		}
	}
	if err := rows.Err(); err != nil {
		return store.ShardPage{}, err
	}
	found, err := s.get(ctx, v, records, fieldShards)
	if err != nil {
		return store.ShardPage{}, err
	}
	page.At, page.Records = v.At(), make(map[string]int)
	for i := range found {
		if found[i].Exists {
			page.Records[records[i].Name] = int(found[i].Int64(fieldShards))
		}
	}
	return page, nil
}

// shardOf reads a shard. One with another key than readers look up is bad.
func (s *Store) shardOf(r *engine.Row) store.Shard {
	shard := store.Shard{Counter: strings.Clone(r.Key.Name), Number: int(r.Key.Part), Count: r.Int(fieldCount), Updated: r.Updated, Bad: r.Bad}
	if want := s.shardPlace(shard.Counter, shard.Number); shard.Bad == "" && r.Key.Place != want {
		shard.Bad = fmt.Sprintf("its place is %016x, and readers look at %016x", r.Key.Place, want)
	}
	return shard
}
