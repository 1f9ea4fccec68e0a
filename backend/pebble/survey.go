package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countmill/countmill/store"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// maxScanned is the most shards that are examined for one page. Shards are in wire.Order, so only few
// of them may have the prefix.
const maxScanned = 20_000

// ShardsOf looks up every possible shard of a counter.
func (s *Store) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	v := s.View().(*view)
	defer v.Close()
	keys := make([]store.Key, countmill.MaxShards)
	for i := range keys {
		keys[i] = store.Key{Counter: counter, Shard: i}
	}
	values, err := v.Lookup(ctx, keys)
	if err != nil {
		return store.ShardPage{}, err
	}
	page := store.ShardPage{At: v.at}
	for i, value := range values {
		if value.Exists {
			page.Shards = append(page.Shards, store.Shard{Counter: counter, Number: i, Count: value.Count})
		}
	}
	page.Records, err = v.records(ctx, []string{counter})
	return page, err
}

// ShardPage lists the shards in the order of their keys. A page's Next is the key of the last examined
// shard, without the prefix that all shard keys share.
func (s *Store) ShardPage(ctx context.Context, prefix, from string, limit int) (store.ShardPage, error) {
	v := s.View().(*view)
	defer v.Close()
	page, err := v.walk(ctx, prefix, from, limit)
	if err != nil {
		return store.ShardPage{}, err
	}
	counters := make(map[string]struct{})
	for i := range page.Shards {
		counters[page.Shards[i].Counter] = struct{}{}
	}
	page.Records, err = v.records(ctx, slices.Collect(maps.Keys(counters)))
	return page, err
}

// records looks up at most maxKeys records.
func (v *view) records(ctx context.Context, counters []string) (map[string]int, error) {
	keys := make([]store.Key, len(counters))
	for i, counter := range counters {
		keys[i] = store.Key{Counter: counter, Shard: store.RecordKey}
	}
	values, err := v.Lookup(ctx, keys)
	if err != nil {
		return nil, err
	}
	records := make(map[string]int, len(counters))
	for i, value := range values {
		if value.Exists {
			records[counters[i]] = value.Shards
		}
	}
	return records, nil
}

func (v *view) walk(ctx context.Context, prefix, from string, limit int) (page store.ShardPage, err error) {
	s := v.store
	if err := s.enter(); err != nil {
		return page, err
	}
	defer s.closing.RUnlock()
	if err := v.pin(ctx); err != nil {
		return page, err
	}
	page.At = v.at
	begin := s.keys.kind(nil, kindShard)
	bounds := &pebbledb.IterOptions{LowerBound: begin, UpperBound: after(begin)}
	if from != "" {
		bounds.LowerBound = append(append(slices.Clone(begin), from...), 0)
	}
	iter, err := v.snapshot.NewIter(bounds)
	if err != nil {
		return page, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	ok := iter.First()
	for scanned := 0; ok && scanned < maxScanned && len(page.Shards) < min(limit, maxKeys); scanned++ {
		page.Next = string(iter.Key()[len(begin):])
		value, err := iter.ValueAndErr()
		if err != nil {
			return page, err
		}
		if shard := shardOf(page.Next, value); strings.HasPrefix(shard.Counter, prefix) {
			page.Shards = append(page.Shards, shard)
		}
		if scanned%1000 == 999 && ctx.Err() != nil {
			return page, ctx.Err()
		}
		ok = iter.Next()
	}
	if !ok {
		page.Next = ""
	}
	return page, iter.Error()
}

// shardOf decodes a shard from its key (order, counter, number) and its value.
func shardOf(key string, value []byte) store.Shard {
	const order, number = 8, 2
	if len(key) <= order+number {
		return store.Shard{Bad: fmt.Sprintf("its key %q is cut off", key)}
	}
	name, n := key[order:len(key)-number], binary.BigEndian.Uint16([]byte(key[len(key)-number:]))
	shard := store.Shard{Counter: name, Number: int(n)}
	if wire.Order(name) != binary.BigEndian.Uint64([]byte(key[:order])) {
		shard.Bad = "its key belongs to another shard"
	}
	sum, err := decodeShard(value)
	if err != nil {
		shard.Bad = err.Error()
	}
	shard.Count = sum.count.exact()
	return shard
}
