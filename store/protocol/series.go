package protocol

import (
	"sync"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func dayOf(m wire.Minute) day { return day(m / store.DayMinutes) }

// first is the first minute of the day.
func (d day) first() wire.Minute { return wire.Minute(d) * store.DayMinutes }

// A recent remembers the buckets that this process has folded to lately. It forgets some early.
type recent struct {
	mu      sync.Mutex
	buckets []uint64
}

// fresh counts the buckets of the shard with a wire.ShardHash that it does not remember, and remembers them.
func (r *recent) fresh(shard uint64, buckets []store.BucketDelta) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range buckets {
		if r.buckets == nil {
			r.buckets = make([]uint64, 1<<16)
		}
		bucket := (shard ^ uint64(b.Minute)) * 0x9e3779b97f4a7c15 // Fibonacci hashing (Knuth, volume 3, 6.4)
		if at := &r.buckets[bucket>>48]; *at != bucket {
			*at = bucket
			n++
		}
	}
	return n
}

// Crowded are shards with too many buckets.
type crowded struct {
	mu     sync.Mutex
	shards map[store.Key]struct{}
}

// mostCrowded bounds them. A fold of a later minute finds a shard that was left out again.
const mostCrowded = 10_000

func (c *crowded) note(k store.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shards == nil {
		c.shards = make(map[store.Key]struct{})
	}
	if len(c.shards) < mostCrowded {
		c.shards[k] = struct{}{}
	}
}

func (c *crowded) take() map[store.Key]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	shards := c.shards
	c.shards = nil
	return shards
}
