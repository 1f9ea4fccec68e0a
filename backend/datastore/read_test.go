package datastore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	ds "cloud.google.com/go/datastore"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/reader"
)

// plain returns Google's own client for the same database. It uses nothing of this package.
func plain(t *testing.T, cfg Config) *ds.Client {
	t.Helper()
	if os.Getenv("DATASTORE_EMULATOR_HOST") != "" {
		t.Skip("DATASTORE_EMULATOR_HOST would send Google's client elsewhere")
	}
	c, err := ds.NewClient(t.Context(), cfg.Project, option.WithEndpoint("passthrough:///"+cfg.Emulator), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// An index on count or shards would limit the kind to 500 writes a second. A query on a property finds
// only indexed values.
func TestCountsAreNotIndexed(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	for range 2 { // the second fold finds existing entities
		if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 3}}); err != nil {
			t.Fatal(err)
		}
		mustFold(t, s, &store.Commit{Markers: []store.Marker{newMarker()}, Adds: []store.ShardDelta{add("a", 0, 5)}})
	}
	if err := s.Beat(t.Context(), store.Worker{ID: "w", Expires: now()}); err != nil {
		t.Fatal(err)
	}
	client := plain(t, cfg)
	for kind, properties := range map[string][]string{
		kindShard: {"count", "tally", "shards"}, kindCounter: {"shards", "created"}, kindApplied: {"fingerprint", "fold", "expire_at"},
		kindWorker: {"lag", "expire_at", "entries"}, kindMeta: {"id", "format"},
	} {
		if all := find(t, client, ds.NewQuery(kind)); all == 0 {
			t.Errorf("there is no %s", kind)
		}
		for _, p := range properties {
			if n := find(t, client, ds.NewQuery(kind).Order(p)); n != 0 {
				t.Errorf("a query on %s.%s finds %d entities, want none", kind, p, n)
			}
		}
	}
	if n := find(t, client, ds.NewQuery(kindShard).FilterField("counter", "=", "a")); n != 1 {
		t.Errorf("a query on %s.counter finds %d entities, want 1", kindShard, n)
	}
}

func find(t *testing.T, c *ds.Client, q *ds.Query) int {
	t.Helper()
	keys, err := c.GetAll(t.Context(), q.KeysOnly(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(keys)
}

// A program that adds the shards up with Google's client gets the reader's totals.
func TestTotalsAreTheSumsOfShards(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	want := foldRandomly(t, s, 100, 20)
	if diff := gocmp.Diff(want, sumShards(t, plain(t, cfg))); diff != "" {
		t.Errorf("sums of the shards (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(want, readTotals(t, s, slices.Sorted(maps.Keys(want)))); diff != "" {
		t.Errorf("the reader's totals (-want +got):\n%s", diff)
	}
}

// foldRandomly folds from three goroutines at once, as aggregators do, and returns the sums.
func foldRandomly(t *testing.T, s *Store, counters, commits int) map[string]int64 {
	t.Helper()
	names := make([]string, counters)
	growths := make([]store.Growth, counters)
	for i := range names {
		names[i] = fmt.Sprintf("päge/%d", i)
		growths[i] = store.Growth{Counter: names[i], Shards: 20}
	}
	if err := s.Grow(t.Context(), growths); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]int64)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range commits {
				c := randomCommit(names)
				if !settle(t, s, c) {
					return
				}
				mu.Lock()
				for _, a := range c.Adds {
					want[a.Counter] += a.Delta
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return want
}

func randomCommit(names []string) *store.Commit {
	c := &store.Commit{Markers: []store.Marker{newMarker()}}
	for _, i := range rand.Perm(len(names))[:20] {
		c.Adds = append(c.Adds, add(names[i], rand.IntN(20), rand.Int64N(2000)-1000|1))
	}
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int { return cmp.Compare(a.Order, b.Order) })
	return c
}

// settle repeats a commit until it is known to be applied.
func settle(t *testing.T, s *Store, c *store.Commit) bool {
	for range 500 {
		_, err := s.Fold(t.Context(), c)
		if err == nil || errors.Is(err, store.ErrMarkerExists) { // no other commit has this marker
			return true
		}
		if errors.Is(err, store.ErrRefused) || errors.Is(err, store.ErrDeployment) {
			t.Errorf("Fold: %v", err)
			return false
		}
	}
	t.Error("Fold: 500 tries")
	return false
}

func sumShards(t *testing.T, c *ds.Client) map[string]int64 {
	t.Helper()
	var shards []struct {
		Counter string `datastore:"counter"`
		Count   int64  `datastore:"count,noindex"`
		Tally   int64  `datastore:"tally,noindex"`
		Shards  int64  `datastore:"shards,noindex"`
	}
	if _, err := c.GetAll(t.Context(), ds.NewQuery("CountmillShard"), &shards); err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]int64)
	for _, sh := range shards {
		sums[sh.Counter] += sh.Count
	}
	return sums
}

func readTotals(t *testing.T, s *Store, names []string) map[string]int64 {
	t.Helper()
	cache, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := reader.New(s, cache, reader.Config{})
	if err != nil {
		t.Fatal(err)
	}
	totals, err := r.Totals(t.Context(), names, 0)
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]int64)
	for _, total := range totals {
		sums[total.Counter] = total.Total
	}
	return sums
}

// A server may answer a part of a look-up and defer the rest.
func TestDeferredKeys(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.DialOptions = []grpc.DialOption{deferLast()}
	s := openStore(t, cfg)
	mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add("a", 0, 1), add("a", 1, 2)}})
	if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 2}, {Counter: "b", Shards: 3}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Shards(t.Context(), []string{"a", "b", "c"}); err != nil || !slices.Equal(got, []int{2, 3, 0}) {
		t.Errorf("Shards: %v, %v; want 2, 3 and 0", got, err)
	}
	v := s.View()
	defer v.Close()
	first, err := v.Lookup(t.Context(), []store.Key{{Counter: "a", Shard: 0}, {Counter: "a", Shard: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]store.Value{{Exists: true, Count: int128.Of(1)}, {Deferred: true}}, first); diff != "" {
		t.Errorf("first look-up (-want +got):\n%s", diff)
	}
	at := v.ReadTime()
	mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add("a", 1, 10)}})
	second, err := v.Lookup(t.Context(), []store.Key{{Counter: "a", Shard: 1}})
	if err != nil || second[0].Count != int128.Of(2) || !v.ReadTime().Equal(at) {
		t.Errorf("second look-up at %s: %v, %v; want 2 at %s", v.ReadTime(), second, err, at)
	}
}

// deferLast makes the server defer the last key of each look-up of several keys.
func deferLast() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		in, ok := req.(*pb.LookupRequest)
		if !ok || len(in.Keys) < 2 {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		last := len(in.Keys) - 1
		short := &pb.LookupRequest{ProjectId: in.ProjectId, DatabaseId: in.DatabaseId, ReadOptions: in.ReadOptions, Keys: in.Keys[:last]}
		err := invoke(ctx, method, short, reply, cc, opts...)
		reply.(*pb.LookupResponse).Deferred = in.Keys[last:]
		return err
	})
}

// A prefix that a person types may be a name that Datastore reserves.
func TestListOfReservedNames(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{Project: emulator.Project(), Emulator: emulator.Firestore(t), DialOptions: []grpc.DialOption{refuseReserved()}})
	if err := s.Grow(t.Context(), []store.Growth{{Counter: "__x__y", Shards: 1}, {Counter: "__x_", Shards: 1}, {Counter: "a", Shards: 1}}); err != nil {
		t.Fatalf("%v", err)
	}
	for _, c := range []struct {
		prefix, after string
		want          int
	}{{"__x__", "", 1}, {"", "__x__", 2}, {"__", "__x__", 1}, {"____", "", 0}, {"__x__", "__x__", 1}, {"__x__y", "", 1}, {"____", "__zz__", 0}} {
		v := s.View()
		got, err := v.List(t.Context(), c.prefix, c.after, 10)
		if err != nil || len(got) != c.want {
			t.Errorf("List(%q, %q): %v, %v; want %d", c.prefix, c.after, got, err, c.want)
		}
	}
	if _, err := s.ListDeadLetters(t.Context(), "__x__", 1); err != nil {
		t.Errorf("Dead after a reserved name: %v", err)
	}
}

// refuseReserved makes the server refuse reserved names in filters, as the service may.
func refuseReserved() grpc.DialOption {
	reserved := regexp.MustCompile(`kind:"[A-Za-z]+" +name:"__[^"]*__"`)
	p := &tap{answer: func(_ string, req, _ any) (bool, error) {
		return reserved.MatchString(fmt.Sprint(req)), status.Error(codes.InvalidArgument, "reserved")
	}}
	return p.option()
}
