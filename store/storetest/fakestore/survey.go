package fakestore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/countmill/countmill/store"
)

// ShardsOf returns the shards of a counter by number.
func (s *Store) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	return s.survey(ctx, func(name string) bool { return name == counter }, "", math.MaxInt)
}

// ShardPage returns shards in the order of counters and numbers. A page's Next is its last shard.
func (s *Store) ShardPage(ctx context.Context, prefix, from string, limit int) (store.ShardPage, error) {
	return s.survey(ctx, func(name string) bool { return strings.HasPrefix(name, prefix) }, from, limit)
}

func (s *Store) survey(ctx context.Context, match func(string) bool, from string, limit int) (page store.ShardPage, err error) {
	answer, err := s.begin(ctx, Survey, nil)
	if err != nil {
		return page, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		page = store.ShardPage{At: s.readTimeLocked(), Records: map[string]int{}}
		var all []shardKey
		for key := range s.shards {
			if match(key.counter) {
				all = append(all, key)
			}
		}
		slices.SortFunc(all, func(a, b shardKey) int {
			return cmp.Or(strings.Compare(a.counter, b.counter), cmp.Compare(a.shard, b.shard))
		})
		for _, key := range all {
			place := fmt.Sprintf("%s\x00%04d", key.counter, key.shard)
			if place <= from {
				continue
			}
			if len(page.Shards) == limit {
				return nil
			}
			count, _ := s.shards[key].newest()
			page.Shards = append(page.Shards, store.Shard{
				Counter: key.counter, Number: key.shard, Count: count,
			})
			page.Next = place
			if record := s.valueLocked(store.Key{Counter: key.counter, Shard: store.RecordKey}, page.At); record.Exists {
				page.Records[key.counter] = int(record.Shards)
			}
		}
		page.Next = ""
		return nil
	})
	return page, err
}
