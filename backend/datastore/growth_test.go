package datastore

import (
	"context"

	"github.com/countmill/countmill/store"

	crand "crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/wire"
)

type chanBus chan *message.Message

func (b chanBus) Subscribe(context.Context, string) (<-chan *message.Message, error) { return b, nil }

// Several aggregators share only the database. They commit to one counter far more often than a shard
// is said to sustain. Meanwhile it gets more shards, all of them see the new ones, and the total is
// exact.
func TestHotCounterGrows(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	buses, aggregators := make([]chanBus, 3), make([]*aggregator.Aggregator, 3)
	for i := range buses {
		buses[i] = make(chanBus)
		a, err := aggregator.New(buses[i], openStore(t, cfg), aggregator.Config{ShardRate: 0.1, MaxShards: 8, Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		aggregators[i] = a
		all.Go(func() {
			if err := a.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	var sent, grown int64
	for began := time.Now(); time.Since(began) < 5*time.Minute && grownTo(t, s, "hot") < 8; time.Sleep(50 * time.Millisecond) {
		for _, bus := range buses {
			delta := 1 + sent%7
			parts := wire.CutAnonymous(crand.Reader, []wire.Entry{{Counter: "hot", Delta: delta}})
			bus <- message.NewMessage("", wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: parts}))
			sent += delta
		}
	}
	stop()
	all.Wait()
	for _, a := range aggregators {
		grown += a.Stats().Grown
	}
	if n := grownTo(t, s, "hot"); n != 8 || grown == 0 {
		t.Errorf("%d shards after five minutes, want 8, the limit; %d growths counted", n, grown)
	}
	page, err := s.ShardsOf(t.Context(), "hot")
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, shard := range page.Shards {
		if total += int64(shard.Count.Lo); shard.Bad != "" || shard.Number >= 8 {
			t.Errorf("shard %+v", shard)
		}
	}
	if total != sent || len(page.Shards) < 2 {
		t.Errorf("%d in %d shards, %d sent", total, len(page.Shards), sent)
	}
}

// grownTo returns the number of shards that a reader adds up.
func grownTo(t *testing.T, s *Store, counter string) int64 {
	t.Helper()
	return int64(value(t, s, counter, store.RecordKey).Shards)
}
