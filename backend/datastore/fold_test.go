package datastore

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestFoldIsOneCall(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	p.take()
	c := &store.Commit{}
	for i := range 16 {
		c.Markers = append(c.Markers, newMarker())
		for range 24 {
			c.Adds = append(c.Adds, add(fmt.Sprintf("c%d/%d", i, len(c.Adds)), 0, 1))
		}
	}
	if c.Entities() != 400 {
		t.Fatalf("%d entities, want 400", c.Entities())
	}
	mustFold(t, s, c)
	if got := p.take(); !slices.Equal(got, []string{"Commit"}) {
		t.Errorf("a fold of 400 entities made the calls %v, want one Commit", got)
	}
	if _, err := s.Fold(t.Context(), c); !errors.Is(err, store.ErrMarkerExists) {
		t.Errorf("the same again: got error %v, want ErrMarkerExists", err)
	}
	if got := p.take(); !slices.Equal(got, []string{"Commit"}) {
		t.Errorf("a refused fold made the calls %v, want one Commit", got)
	}
}

// If an answer is lost, neither the store nor gRPC sends the call again: the increments would count
// twice. The server counts the calls.
func TestFoldIsNeverRepeated(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	s := openStore(t, Config{Project: "p-1", Emulator: serve(t, r)})
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		r.fail = func(req any) error {
			if _, ok := req.(*pb.CommitRequest); ok {
				return status.Error(code, "lost")
			}
			return nil
		}
		before := r.count("Commit")
		_, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{newMarker()}})
		if n := r.count("Commit") - before; status.Code(err) != code || n != 1 {
			t.Errorf("%s: error %v after %d commits, want one", code, err, n)
		}
	}
}

func TestAnswerTable(t *testing.T) {
	t.Parallel()
	want := map[codes.Code]error{
		codes.AlreadyExists: store.ErrMarkerExists,
		codes.Aborted:       store.ErrContended, // maybe applied, like all codes that are not in this table
		// nothing applied, and a repetition would be refused too
		codes.InvalidArgument: store.ErrRefused, codes.OutOfRange: store.ErrRefused,
		// the deployment is wrong
		codes.PermissionDenied: store.ErrDeployment, codes.Unauthenticated: store.ErrDeployment, codes.NotFound: store.ErrDeployment,
		codes.FailedPrecondition: store.ErrDeployment, codes.Unimplemented: store.ErrDeployment,
	}
	s := &Store{cfg: Config{Project: "test"}}
	for code := codes.Canceled; code <= codes.Unauthenticated+3; code++ { // including codes that do not exist yet
		err := s.explain("fold", status.Error(code, "said so"))
		for _, sentinel := range []error{store.ErrMarkerExists, store.ErrRefused, store.ErrDeployment, store.ErrNotCounted, store.ErrContended} {
			if got := errors.Is(err, sentinel); got != (want[code] == sentinel) {
				t.Errorf("%s matches %q: %t, want %v", code, sentinel, got, want[code])
			}
		}
		if got := status.Code(err); got != code {
			t.Errorf("%s became %s in %v", code, got, err)
		}
	}
}

// Every answer is checked for a server that says OK without having counted.
func TestMissingTransformResult(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	result := func(values ...*pb.Value) *pb.MutationResult { return &pb.MutationResult{TransformResults: values} }
	one := integer(1)
	for name, results := range map[string][]*pb.MutationResult{
		"no results":         nil,
		"one is missing":     {result(), result(one, one, one, one), result()},
		"one too few":        {result(), result(one, one, one, one)},
		"a double":           {result(), result(one, one, one, one), result(&pb.Value{ValueType: &pb.Value_DoubleValue{DoubleValue: 1}}, one, one, one)},
		"the count alone":    {result(), result(one, one, one, one), result(one)},
		"the last missing":   {result(), result(one, one, one, one), result(one, one, one)},
		"one for the marker": {result(one, one, one, one), result(one, one, one, one), result()},
	} {
		p.set(func(_ string, _, reply any) (bool, error) {
			resp, ok := reply.(*pb.CommitResponse)
			if ok {
				proto.Merge(resp, &pb.CommitResponse{MutationResults: results})
			}
			return ok, nil
		})
		_, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{newMarker()}, Adds: []store.ShardDelta{add("a", 0, 1), add("a", 1, 1)}})
		if !errors.Is(err, store.ErrNotCounted) {
			t.Errorf("%s: got error %v, want ErrNotCounted", name, err)
		}
		if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 1}, {Counter: "b", Shards: 1}, {Counter: "c", Shards: 1}}); !errors.Is(err, store.ErrNotCounted) {
			t.Errorf("%s: Raise got error %v, want ErrNotCounted", name, err)
		}
	}
}

func TestCommitTooLarge(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	c := &store.Commit{}
	for i := range 401 {
		c.Adds = append(c.Adds, add(fmt.Sprint(i), 0, 1))
	}
	if _, err := s.Fold(t.Context(), c); !errors.Is(err, store.ErrRefused) {
		t.Errorf("401 entities: got error %v, want ErrRefused", err)
	}
}

// Commits with a single-use transaction keep an entity's other properties.
func TestFoldKeepsOtherProperties(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	a := add("a", 0, 5)
	r := shardRef(a.Hash, "a", 0)
	for _, of := range []ref{r, {kindCounter, "a"}} {
		if _, err := s.commitOnce(t.Context(), []*pb.Mutation{s.replace(of, map[string]*pb.Value{
			"count": integer(1), "shards": integer(1), "created": integer(3), "baseline": integer(9),
		})}); err != nil {
			t.Fatal(err)
		}
	}
	mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{a}})
	if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 4}}); err != nil {
		t.Fatal(err)
	}
	found, err := s.lookupAll(t.Context(), []ref{r, {kindCounter, "a"}})
	if err != nil {
		t.Fatal(err)
	}
	shard, record := fields{entity: found[r]}, fields{entity: found[ref{kindCounter, "a"}]}
	if shard.integer("count") != 6 || shard.integer("baseline") != 9 || shard.text("counter") != "a" {
		t.Errorf("the shard is %v", found[r])
	}
	if record.integer("shards") != 4 || record.integer("baseline") != 9 || record.integer("created") != 3 {
		t.Errorf("the record is %v", found[ref{kindCounter, "a"}])
	}
}

// Aggregators of earlier versions may run at the same time. Their folds leave a shard's statistics
// unchanged, and add none; counts are right all the same.
func TestFoldsBesideOlderVersions(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	a := add("a", 0, 5)
	r := shardRef(a.Hash, "a", 0)
	before := s.increment(r, "a", 100, 0, 0)
	before.PropertyTransforms = before.PropertyTransforms[:1]
	for i, want := range []store.ShardStats{{Tally: 51, KnownShards: 7}, {Tally: 52, KnownShards: 7}, {Tally: 71, KnownShards: 9}} {
		if _, err := s.commitOnce(t.Context(), []*pb.Mutation{before}); err != nil {
			t.Fatal(err)
		}
		folded, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{newMarker()}, Adds: []store.ShardDelta{a}, KnownShards: []int{7 - i + i/2*4}, Tally: []int64{50, 40, 70}[i]})
		if err != nil || !slices.Equal(folded.Shards, []store.ShardStats{want}) {
			t.Errorf("the shard has the statistics %+v, want %+v; %v", folded.Shards, want, err)
		}
		if got, want := value(t, s, "a", 0).Count, int128.Of(int64(105*(i+1))); got != want {
			t.Errorf("after fold %d the count is %d, want %d", i+1, got, want)
		}
	}
}
