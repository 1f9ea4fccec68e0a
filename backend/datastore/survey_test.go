package datastore

import (
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/wire"
)

// A survey finds a shard under another shard's key, although no reader looks there. Each shard has the
// time of its last write.
func TestSurveySeesForeignShards(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add("a", 0, 3)}})
	for name, properties := range map[string]map[string]*pb.Value{
		shardRef(wire.ShardHash("b", 1), "b", 1).name: {"counter": indexedText("a"), "count": integer(5)},
		"by hand": {"counter": indexedText("a")},
	} {
		if _, err := s.commitOnce(t.Context(), []*pb.Mutation{s.replace(ref{kindShard, name}, properties)}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.ShardPage(t.Context(), "a", "", 10)
	if err != nil || len(page.Shards) != 3 {
		t.Fatalf("got %+v, %v; want three shards", page, err)
	}
	bad := 0
	for _, sh := range page.Shards {
		if sh.Bad != "" {
			bad++
		} else if sh.Count != int128.Of(3) {
			t.Errorf("shard %+v, want the one of 3", sh)
		}
		if age := page.At.Sub(sh.Updated); age < 0 || age > time.Minute {
			t.Errorf("last written %s before the read, want less than a minute", age)
		}
	}
	if bad != 2 {
		t.Errorf("%d shards are bad, want 2: %+v", bad, page.Shards)
	}
}
