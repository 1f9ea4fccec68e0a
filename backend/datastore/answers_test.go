package datastore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"

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
		codes.AlreadyExists: engine.ErrExists,
		codes.Aborted:       engine.ErrContended, // maybe applied, like all codes that are not in this table
		// nothing applied, and a repetition would be refused too
		codes.InvalidArgument: engine.ErrRefused, codes.OutOfRange: engine.ErrRefused,
		// the deployment is wrong
		codes.PermissionDenied: engine.ErrDeployment, codes.Unauthenticated: engine.ErrDeployment, codes.NotFound: engine.ErrDeployment,
		codes.FailedPrecondition: engine.ErrDeployment, codes.Unimplemented: engine.ErrDeployment,
	}
	d := &database{cfg: Config{Project: "test"}}
	for code := codes.Canceled; code <= codes.Unauthenticated+3; code++ { // including codes that do not exist yet
		err := d.explain("fold", status.Error(code, "said so"), false)
		for _, sentinel := range []error{engine.ErrExists, engine.ErrRefused, engine.ErrDeployment, engine.ErrNotCounted, engine.ErrContended} {
			if got := errors.Is(err, sentinel); got != (want[code] == sentinel) {
				t.Errorf("%s matches %q: %t, want %v", code, sentinel, got, want[code])
			}
		}
		if got := status.Code(err); got != code {
			t.Errorf("%s became %s in %v", code, got, err)
		}
	}
	if err := d.explain("fold", status.Error(codes.NotFound, "no entity"), true); !errors.Is(err, engine.ErrMissing) || errors.Is(err, engine.ErrDeployment) {
		t.Errorf("an entity to update is missing: got %v", err)
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

// Each answer of a reset's transaction says whether the reset was certainly not done.
func TestResetAnswers(t *testing.T) {
	t.Parallel()
	calls := &tap{}
	cfg := fresh(t)
	cfg.DialOptions = append(cfg.DialOptions, calls.option())
	s := openStore(t, cfg)
	if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method string
		code   string
		undone bool
	}{
		{"BeginTransaction", "PermissionDenied", true}, {"Commit", "PermissionDenied", true}, {"Commit", "InvalidArgument", true},
		{"Commit", "Aborted", true}, {"Commit", "DeadlineExceeded", false}, {"Commit", "Unavailable", false}, {"Commit", "AlreadyExists", false},
	} {
		calls.set(func(method string, _, _ any) (bool, error) {
			if method != "/google.datastore.v1.Datastore/"+c.method {
				return false, nil
			}
			return true, statusOf(c.code)
		})
		_, reset := s.ResetCounter(t.Context(), removal("a", 0))
		_, taken := s.NextValues(t.Context(), "a", []store.Take{{ID: wire.SequenceID("a", rand.Text()), Count: 1, ExpireAt: now().Add(time.Hour)}})
		for what, err := range map[string]error{"reset": reset, "take": taken} {
			if err == nil || errors.Is(err, countmill.ErrUnavailable) != c.undone {
				t.Errorf("%s, %s of %s: got %v, undone want %t", what, c.code, c.method, err, c.undone)
			}
		}
	}
	calls.set(nil)
	if got := value(t, s, "a", store.RecordKey); got.Shards != 1 || got.Reset != (store.ResetState{}) {
		t.Errorf("the record is %+v, want one shard and no reset", got)
	}
}

func statusOf(name string) error {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if code.String() == name {
			return status.Error(code, "no")
		}
	}
	panic(name)
}

func removal(counter string, sum int64) store.ResetRequest {
	return store.ResetRequest{ID: wire.ResetID(counter, rand.Text()), Counter: counter, Delete: true, ExpireAt: now().Add(time.Hour),
		Look: store.Sum{Exists: true, Sum: int128.Of(sum), At: now()}}
}

// The server may defer keys of a look-up in a transaction. The entities that it would have found exist.
func TestDeferredInATransaction(t *testing.T) {
	t.Parallel()
	var defers atomic.Bool
	cfg := fresh(t)
	cfg.Create = true
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		r, ok := reply.(*pb.LookupResponse)
		q, _ := req.(*pb.LookupRequest)
		if ok && err == nil && len(q.GetReadOptions().GetTransaction()) > 0 && len(r.Found) > 0 && defers.CompareAndSwap(true, false) {
			r.Deferred = append(r.Deferred, r.Found[0].GetEntity().GetKey())
			r.Found = r.Found[1:]
		}
		return err
	}))
	d := openEngine(t, cfg, enginetest.Kinds())
	key := engine.Key{Kind: 3, Name: "a"}
	if _, err := d.Commit(t.Context(), &engine.Commit{Changes: engine.Changes(engine.Change{Key: key})}); err != nil {
		t.Fatal(err)
	}
	defers.Store(true)
	if _, err := d.Transact(t.Context(), false, func(tx engine.Tx) error {
		rows, err := tx.Get(t.Context(), []engine.Key{key})
		if err == nil && (!rows[0].Exists || defers.Load()) {
			t.Errorf("got %+v; nothing was deferred: %t", rows[0], defers.Load())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A server may answer a part of a look-up and defer the rest. Both are of one moment.
func TestDeferredKeys(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	var between func() // called once before the first look-up of one key
	cfg.DialOptions = []grpc.DialOption{deferLast(&between)}
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
	between = func() { mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add("a", 1, 10)}}) }
	found, err := v.Lookup(t.Context(), []store.Key{{Counter: "a", Shard: 0}, {Counter: "a", Shard: 1}})
	if diff := gocmp.Diff([]store.Value{{Exists: true, Count: int128.Of(1)}, {Exists: true, Count: int128.Of(2)}}, found); diff != "" || between != nil {
		t.Errorf("%v, a look-up (-want +got):\n%s", err, diff)
	}
}

// deferLast makes the server defer the last key of each look-up of several keys, and calls a function before the look-up of that key.
func deferLast(between *func()) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		in, ok := req.(*pb.LookupRequest)
		if f := *between; ok && len(in.Keys) == 1 && f != nil {
			*between = nil
			f()
		}
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

// A survey finds a shard under another shard's key, although no reader looks there. Each shard has the
// time of its last write.
func TestSurveySeesForeignShards(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add("a", 0, 3)}})
	named := nameValue(&engine.Kind{}, "a")
	for name, properties := range map[string]map[string]*pb.Value{
		"12345678-b\t000001": {nameProperty: named, "count": integer(5)},
		"by hand":            {nameProperty: named},
	} {
		if _, err := s.db.commit(t.Context(), nil, []*pb.Mutation{{Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{
			Key: s.db.key(ref{prefix + "Shard", name}), Properties: properties,
		}}}}); err != nil {
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

// An index on counts or times would limit the kind to 500 writes a second, and costs a write. The second fold finds
// existing entities.
func TestFewPropertiesAreIndexed(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Minutes: store.MaxKeepMinutes, Quarters: store.MaxKeepMinutes}}); err != nil {
		t.Fatal(err)
	}
	minute := wire.MinuteOf(now())
	for range 2 {
		if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 3}}); err != nil {
			t.Fatal(err)
		}
		place := store.JournalPlace{Key: store.NewJournalKey(now(), 1)}
		mustFold(t, s, &store.Commit{
			Markers: []store.Marker{newMarker()}, Adds: []store.ShardDelta{add("a", 0, 1<<62)}, Archive: minute,
			Buckets: []store.BucketDelta{{Minute: minute - store.DayMinutes, Delta: 1}, {Minute: minute, Delta: 1<<62 - 1}},
			Records: []store.JournalRecord{{Key: place.Key, ExpireAt: now(), Data: []byte("x")}}, Rows: []store.JournalRow{{Counter: "a", Place: place, ExpireAt: now(), Data: []byte("x")}},
		})
	}
	if err := s.Beat(t.Context(), store.Worker{ID: "w", Expires: now()}); err != nil {
		t.Fatal(err)
	}
	if err := s.Grow(t.Context(), []store.Growth{{Counter: "gone", Shards: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ResetCounter(t.Context(), removal("gone", 0)); err != nil {
		t.Fatal(err)
	}
	batch, err := s.db.runQuery(t.Context(), &pb.Query{}, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]string)
	for _, e := range batch.GetEntityResults() {
		r := refOf(e.GetEntity().GetKey())
		if r.kind == kindProbe { // its removal came too late on a busy machine
			continue
		}
		got[r.kind] = slices.Grow(got[r.kind], 0)
		for name, v := range e.GetEntity().GetProperties() {
			if !v.GetExcludeFromIndexes() && !slices.Contains(got[r.kind], name) {
				got[r.kind] = append(got[r.kind], name)
			}
		}
	}
	want := map[string][]string{
		"CountmillMeta": nil, "CountmillMarker": nil, "CountmillRecord": {"deletedat"}, "CountmillShard": {"name"}, "CountmillDay": {"due"},
		"CountmillJournal": {"name"}, "CountmillJournalrow": {"name"}, "CountmillWorker": nil,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("indexed properties (-want +got):\n%s", diff)
	}
}

// The emulator enforces no limits. A commit at all limits of a store stays in those of the service: entities of a commit, and
// transforms of an entity, also with deltas that need two.
func TestFoldAtTheLimits(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	limits, minute := s.Limits(), wire.MinuteOf(now())
	c := &store.Commit{Tally: 1, Archive: minute}
	for i := range limits.Entities - 1 {
		c.Adds = append(c.Adds, add(fmt.Sprintf("c%03d", i), 0, 1<<40+1))
	}
	c.Adds[0].Delta = (1<<40 + 1) * int64(limits.Ring.Minutes)
	for i := range limits.Ring.Minutes - 1 {
		c.Buckets = append(c.Buckets, store.BucketDelta{Minute: minute + wire.Minute(i), Delta: 1<<40 + 1})
	}
	c.Buckets = append([]store.BucketDelta{{Minute: minute - 3*store.DayMinutes, Delta: 1<<40 + 1}}, c.Buckets...)
	var indexes []int64
	for i := range store.MaxGroups {
		indexes = append(indexes, int64(i+1))
	}
	c.Grouped = []store.Grouping{{Indexes: indexes}}
	entities, most := 0, 0
	p.set(func(_ string, req, _ any) (bool, error) {
		if r, ok := req.(*pb.CommitRequest); ok {
			entities = len(r.Mutations)
			for _, m := range r.Mutations {
				most = max(most, len(m.PropertyTransforms))
			}
		}
		return false, nil
	})
	mustFold(t, s, c)
	if entities != limits.Entities || entities != c.Entities() || most < 2*limits.Ring.Minutes || most > 500 {
		t.Errorf("a commit with %d entities, want %d, and %d transforms of one, want at most 500", entities, limits.Entities, most)
	}
	if moved, err := s.MoveSeries(t.Context()); moved != 1 || err != nil || most > 500 {
		t.Errorf("moved %d (%v), with %d transforms", moved, err, most)
	}
}
