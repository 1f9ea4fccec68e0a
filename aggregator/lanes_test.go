package aggregator

import (
	"slices"
	"testing"

	"github.com/countmill/countmill/wire"
)

func TestLanesUseAllShards(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		for _, shards := range []int{1, 2, 7} {
			l := &lanes{alone: alone, busy: make(map[lane]struct{})}
			seen := make(map[int]bool)
			for range 200 {
				adds := []Add{{Counter: "a", Hash: wire.HashCounter("a")}}
				if !l.acquire(adds, []int{shards}) {
					t.Fatal("no shard although none is taken")
				}
				if got, want := adds[0].Hash, wire.ShardHash("a", adds[0].Shard); got != want {
					t.Fatalf("shard %d has hash %x, want %x", adds[0].Shard, got, want)
				}
				seen[adds[0].Shard] = true
				l.release(adds)
			}
			if len(seen) != shards || len(l.busy) > 0 {
				t.Errorf("alone %v: %d of %d shards used, %d not released", alone, len(seen), shards, len(l.busy))
			}
		}
	}
}

// All or nothing: shards that were taken before the one that is missing are free again.
func TestLanesGiveBackWhatIsNotEnough(t *testing.T) {
	t.Parallel()
	l := &lanes{busy: make(map[lane]struct{})}
	first := []Add{{Counter: "b"}}
	if !l.acquire(first, []int{1}) {
		t.Fatal("the first commit gets no shard")
	}
	if l.acquire([]Add{{Counter: "a"}, {Counter: "b"}, {Counter: "c"}}, []int{1, 1, 1}) {
		t.Error("two commits on one shard")
	}
	if len(l.busy) != 1 {
		t.Errorf("%d shards taken, want the first commit's", len(l.busy))
	}
	l.release(first)
	if adds := []Add{{Counter: "a"}, {Counter: "b"}}; !l.acquire(adds, []int{1, 1}) {
		t.Error("no shard although all are free again")
	}
}

// With as many commits as shards each finds the one that is left.
func TestLanesFindTheLastFreeShard(t *testing.T) {
	t.Parallel()
	for range 50 {
		l := &lanes{busy: make(map[lane]struct{})}
		var got []int
		for range 5 {
			adds := []Add{{Counter: "a"}}
			if !l.acquire(adds, []int{5}) {
				t.Fatalf("no shard beside %v of 5", got)
			}
			got = append(got, adds[0].Shard)
		}
		if slices.Sort(got); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("shards %v, want each once", got)
		}
	}
}

// Shards of one counter lie far apart; a commit is in key order all the same.
func TestLanesKeepKeyOrder(t *testing.T) {
	t.Parallel()
	l := &lanes{busy: make(map[lane]struct{})}
	for range 50 {
		var adds []Add
		for _, c := range []string{"a", "b", "c", "d"} {
			adds = append(adds, Add{Counter: c, Hash: wire.HashCounter(c)})
		}
		slices.SortFunc(adds, compareAdds)
		if !l.acquire(adds, []int{9, 9, 9, 9}) {
			t.Fatal("no shard")
		}
		if !slices.IsSortedFunc(adds, compareAdds) {
			t.Fatalf("%+v are not in key order", adds)
		}
		l.release(adds)
	}
}
