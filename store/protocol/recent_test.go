package protocol

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// isNew reports whether a bucket was not remembered.
func (r *recent) isNew(shard uint64, m wire.Minute) bool {
	return r.fresh(shard, []store.BucketDelta{{Minute: m}}) > 0
}

func TestRecentBuckets(t *testing.T) {
	t.Parallel()
	r := new(recent)
	shard := wire.ShardHash("a", 0)
	if !r.isNew(shard, 29_000_000) || r.isNew(shard, 29_000_000) {
		t.Error("the first fold to a bucket is new, and the second is not")
	}
	if !r.isNew(shard, 29_000_001) || !r.isNew(wire.ShardHash("a", 1), 29_000_000) {
		t.Error("another minute and another shard are new")
	}
	kept := 0
	for i := range 1000 {
		r.isNew(wire.ShardHash(fmt.Sprint(i), 0), 29_000_000)
	}
	for i := range 1000 {
		if !r.isNew(wire.ShardHash(fmt.Sprint(i), 0), 29_000_000) {
			kept++
		}
	}
	if kept < 950 {
		t.Errorf("of 1,000 buckets it remembers %d", kept)
	}
}

func TestCrowdedIsBounded(t *testing.T) {
	t.Parallel()
	var c crowded
	if len(c.take()) != 0 {
		t.Error("there are shards at the start")
	}
	message := strings.Repeat("a", 1000)
	for i := range mostCrowded + 5 {
		c.note(store.Key{Counter: message[:1], Shard: i})
		c.note(store.Key{Counter: message[:1], Shard: 0})
	}
	shards := c.take()
	if n := len(shards); n != mostCrowded || len(c.take()) != 0 {
		t.Errorf("it has %d shards, want %d, and none after they were taken", n, mostCrowded)
	}
	for k := range shards {
		if unsafe.StringData(k.Counter) == unsafe.StringData(message) {
			t.Fatalf("the name of %v is cut from a message, and keeps it in memory", k)
		}
	}
}

// A process remembers 65,536 buckets. At 100M increments an hour to a million counters it forgets some between
// two folds of a minute, and so moves shards early. That costs less than 1 % of the shards' entities.
func TestForgottenBuckets(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "draws 60 million increments")
	const rate, windows, names, minutes = 27_778, 9, 1_000_000, 40
	rank := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, names-1)
	var seen recent
	var hashes [names]uint64
	var window, buckets [names]int32
	folds, moves := 0, 0
	for n := range int32(minutes * 60 * windows) {
		minute := wire.Minute(n / (60 * windows))
		if minute < minutes/2 {
			folds, moves = 0, 0 // the busiest rings are not full yet
		}
		for range rate / windows {
			k := rank.Uint64()
			if window[k] == n+1 {
				continue
			}
			if window[k] == 0 {
				hashes[k] = wire.ShardHash(strconv.FormatUint(k, 10), 0)
			}
			window[k] = n + 1
			folds++
			if seen.isNew(hashes[k], minute) {
				buckets[k]++
			}
			if buckets[k] > store.SeriesBuckets {
				buckets[k], moves = 0, moves+1
			}
		}
	}
	share := 2 * float64(moves) / float64(folds)
	t.Logf("%d folds, %d moves of two entities: %.2f %%", folds, moves, 100*share)
	if share > 0.01 || moves == 0 {
		t.Errorf("moves write %.4f times the entities of folds, want at most 0.01", share)
	}
}
