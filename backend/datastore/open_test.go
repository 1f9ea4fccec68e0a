package datastore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/compute/metadata"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/internal/testing/emulator"
)

// A recorder is a server that keeps the headers of every call and answers as an empty database would.
type recorder struct {
	pb.UnimplementedDatastoreServer
	fail func(req any) error // returns an error for a request; may be nil

	mu      sync.Mutex
	meta    *pb.Entity       // the one entity that it keeps
	counts  map[string]int64 // of the probe's entities
	headers []grpcmetadata.MD
	methods []string
}

func (r *recorder) note(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	md, _ := grpcmetadata.FromIncomingContext(ctx)
	r.mu.Lock()
	r.headers, r.methods = append(r.headers, md), append(r.methods, filepath.Base(info.FullMethod))
	r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(req); err != nil {
			return nil, err
		}
	}
	switch info.FullMethod {
	case pb.Datastore_Lookup_FullMethodName:
		return r.lookup(req.(*pb.LookupRequest)), nil
	case pb.Datastore_Commit_FullMethodName:
		if req.(*pb.CommitRequest).GetTransaction() != nil {
			return nil, status.Error(codes.Aborted, "contention")
		}
		return r.commit(req.(*pb.CommitRequest)), nil
	case pb.Datastore_BeginTransaction_FullMethodName:
		return &pb.BeginTransactionResponse{Transaction: []byte("t")}, nil
	case pb.Datastore_RunQuery_FullMethodName:
		return &pb.RunQueryResponse{Batch: &pb.QueryResultBatch{ReadTime: timestamppb.Now()}}, nil
	}
	return &pb.RollbackResponse{}, nil
}

func (r *recorder) lookup(req *pb.LookupRequest) *pb.LookupResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &pb.LookupResponse{ReadTime: timestamppb.Now()}
	for _, key := range req.Keys {
		if r.meta != nil && proto.Equal(key, r.meta.Key) {
			resp.Found = append(resp.Found, &pb.EntityResult{Entity: r.meta})
		} else {
			resp.Missing = append(resp.Missing, &pb.EntityResult{Entity: &pb.Entity{Key: key}})
		}
	}
	return resp
}

// commit answers every transform with the sum of its entity's increments.
func (r *recorder) commit(req *pb.CommitRequest) *pb.CommitResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[string]int64)
	}
	resp := &pb.CommitResponse{}
	for _, m := range req.Mutations {
		result := &pb.MutationResult{}
		if e := m.GetInsert(); refOf(e.GetKey()).kind == prefix+"Meta" {
			r.meta = e
		}
		for i, tr := range m.PropertyTransforms {
			name := m.GetUpsert().GetKey().String()
			if i == 0 {
				r.counts[name] += tr.GetIncrement().GetIntegerValue()
			}
			result.TransformResults = append(result.TransformResults, integer(r.counts[name]))
		}
		resp.MutationResults = append(resp.MutationResults, result)
	}
	return resp
}

func serve(t *testing.T, r *recorder) (host string) {
	t.Helper()
	host, _ = serveOn(t, r, "127.0.0.1:0")
	return host
}

func serveOn(t *testing.T, r *recorder, address string) (host string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	for wait := 0; err != nil && wait < 100; wait++ { // another process's outgoing connection may use the port
		time.Sleep(100 * time.Millisecond)
		l, err = net.Listen("tcp", address)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(r.note))
	pb.RegisterDatastoreServer(server, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	stop = func() { server.Stop(); <-done }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func (r *recorder) count(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, m := range r.methods {
		if m == method {
			n++
		}
	}
	return n
}

// Google finds a named database by these two headers in every call.
func TestRoutingHeaders(t *testing.T) {
	t.Parallel()
	for database, want := range map[string][2]string{
		"":         {"projects/p-1", "project_id=p-1"},
		"counters": {"projects/p-1/databases/counters", "project_id=p-1&database_id=counters"},
	} {
		r := &recorder{}
		s := openStore(t, Config{Project: "p-1", Database: database, Emulator: serve(t, r)})
		v := s.View()
		_, _ = v.List(t.Context(), "", "", 1)
		_, _ = s.Applied(t.Context(), nil)
		mustFold(t, s, &store.Commit{Markers: []store.Marker{newMarker()}})
		_, _ = s.ResetCounter(t.Context(), removal("a", 0))
		for i, md := range r.headers {
			got := [2]string{strings.Join(md["google-cloud-resource-prefix"], "|"), strings.Join(md["x-goog-request-params"], "|")}
			if got != want {
				t.Errorf("database %q, %s: headers %q, want %q", database, r.methods[i], got, want)
			}
		}
		for _, method := range []string{"Lookup", "RunQuery", "Commit", "BeginTransaction", "Rollback"} {
			if !slices.Contains(r.methods, method) {
				t.Errorf("database %q: no call of %s among %v", database, method, r.methods)
			}
		}
	}
}

func TestConfigProblems(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{
		Project: "P!", Database: "no", Namespace: "a b", Emulator: "127.0.0.1:1", Endpoint: "x:1", Timeout: -1,
	})
	for _, field := range []string{"Project", "Database", "Namespace", "Endpoint", "Timeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("the problem with %s is not in %v", field, err)
		}
	}
}

func TestNoCredentials(t *testing.T) { // not parallel: it sets variables
	for _, name := range []string{"DATASTORE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	if metadata.OnGCE() {
		t.Skip("this machine has credentials")
	}
	_, err := Open(t.Context(), Config{Project: "p-1"})
	wantAdvice(t, err)
}

// The search may hang, because it asks the network.
func TestCredentialsSearchEnds(t *testing.T) {
	t.Setenv("DATASTORE_EMULATOR_HOST", "")
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		defer close(stop)
		started := time.Now()
		_, err := open(t.Context(), Config{Project: "p-1"}, func(*credentials.DetectOptions) (*auth.Credentials, error) {
			<-stop
			return nil, nil
		})
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("took %s, want at most 5s", took)
		}
		wantAdvice(t, err)
	})
}

func wantAdvice(t *testing.T, err error) {
	t.Helper()
	for _, advice := range []string{"application default credentials", "DATASTORE_EMULATOR_HOST"} {
		if err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("error %v does not name %s", err, advice)
		}
	}
}

func TestOpenGivesUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts connections and never answers
	_, err = Open(t.Context(), Config{Project: "p-1", Emulator: l.Addr().String(), OpenTimeout: 200 * time.Millisecond})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got error %v, want one of a deadline", err)
	}
}

// A logbook keeps the messages of a log.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

func (l *logbook) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.Contains(line, text) })
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestProbeLeavesNothing(t *testing.T) {
	t.Parallel()
	cfg, log := fresh(t), &logbook{}
	cfg.Logger = log.logger()
	s := openStore(t, cfg)
	batch, err := s.db.runQuery(t.Context(), &pb.Query{Kind: []*pb.KindExpression{{Name: kindProbe}}}, 100, nil)
	if n := len(batch.GetEntityResults()); n != 0 && !log.has("were not removed") || err != nil {
		t.Errorf("the probe left %d entities (%v)", n, err)
	}
}

// A server is refused if it ignores increments, or does not report when it read; the second also for
// readers. The older emulator does both.
func TestOlderEmulatorIsRefused(t *testing.T) {
	t.Parallel()
	for _, readOnly := range []bool{false, true} {
		cfg := Config{Project: emulator.Project(), Emulator: emulator.Datastore(t), ReadOnly: readOnly}
		wantRefusal(t, cfg, "does not say when it read", "gcloud emulators firestore start --database-mode=datastore-mode")
	}
}

// Some servers ignore transforms and answer OK, others refuse them.
func TestServerWithoutTransformsIsRefused(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]codes.Code{"ignores them": codes.OK, "refuses them": codes.InvalidArgument, "unknown call": codes.Unimplemented} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, p := fresh(t), &tap{}
			openStore(t, cfg) // makes the meta record
			p.set(func(_ string, req, reply any) (bool, error) {
				c, ok := req.(*pb.CommitRequest)
				if ok && code == codes.OK {
					reply.(*pb.CommitResponse).MutationResults = make([]*pb.MutationResult, len(c.Mutations))
				}
				return ok, status.Error(code, "as the test says")
			})
			cfg.DialOptions = []grpc.DialOption{p.option()}
			wantRefusal(t, cfg, "does not know single-use commits with transforms", "gcloud emulators firestore start --database-mode=datastore-mode")
		})
	}
}

// A database with entity groups accepts 25 entities, and transforms. Readers of one are not refused.
func TestEntityGroupsAreRefused(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	p.set(func(_ string, req, _ any) (bool, error) {
		c, ok := req.(*pb.CommitRequest)
		return ok && len(c.Mutations) > 25, status.Error(codes.InvalidArgument, "operating on too many entity groups in a single transaction.")
	})
	cfg.DialOptions = []grpc.DialOption{p.option()}
	wantRefusal(t, cfg, "OPTIMISTIC_WITH_ENTITY_GROUPS", "set its concurrency mode to PESSIMISTIC")
	cfg.ReadOnly = true
	openStore(t, cfg)
}

// wantRefusal wants Open to give up at once, with an error of one line that contains these texts.
func wantRefusal(t *testing.T, cfg Config, says ...string) {
	t.Helper()
	cfg.OpenTimeout = time.Hour // only a refusal ends it sooner
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := Open(ctx, cfg)
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, store.ErrDeployment) {
		t.Fatalf("Open: got error %v, want ErrDeployment", err)
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the refusal does not say %q: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the refusal has several lines: %q", err)
	}
}

// A server that refuses two transforms of one property gets one, and increments still work.
func TestProbeGoesWithoutTallies(t *testing.T) {
	t.Parallel()
	log, p := &logbook{}, &tap{}
	p.set(func(_ string, req, _ any) (bool, error) {
		c, _ := req.(*pb.CommitRequest)
		for _, m := range c.GetMutations() {
			seen := make(map[string]bool)
			for _, tr := range m.GetPropertyTransforms() {
				if seen[tr.Property] {
					return true, status.Error(codes.InvalidArgument, "more than one transform of "+tr.Property)
				}
				seen[tr.Property] = true
			}
		}
		return false, nil
	})
	cfg := fresh(t)
	cfg.Logger, cfg.DialOptions = log.logger(), []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	if l := s.Limits(); l.Entities != 400 || l.Shards != 20 {
		t.Errorf("%d entities and %d shards, want 400 and 20", l.Entities, l.Shards)
	}
	if !log.has("counters begin with 20 shards") {
		t.Errorf("the log does not say so: %v", log.lines)
	}
	for range 2 {
		folded, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{add("a", 0, 3)}, Tally: 100})
		if err != nil || folded.Shards != nil {
			t.Fatalf("got %+v, %v; want no tally", folded, err)
		}
	}
	if got := value(t, s, "a", 0).Count; got != int128.Of(6) {
		t.Errorf("got %d, want 6", got)
	}
	cfg.DialOptions = nil
	if s := openStore(t, cfg); s.db.oneOfTwo || s.Limits().Shards != 1 || value(t, s, "a", 0).Count != int128.Of(6) {
		t.Errorf("a server that takes them: untallied %t, %d shards", s.db.oneOfTwo, s.Limits().Shards)
	}
}

func TestProbePassesOtherErrorsOn(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.PermissionDenied, codes.Unavailable} {
		p := &tap{}
		cfg := fresh(t)
		openStore(t, cfg) // makes the meta record
		p.set(func(method string, _, _ any) (bool, error) {
			return method == pb.Datastore_Commit_FullMethodName, status.Error(code, "no")
		})
		cfg.DialOptions = []grpc.DialOption{p.option()}
		// Unavailable is retried until the time is up. A busy machine may need more time even for a
		// single answer.
		var s *Store
		var err error
		for cfg.OpenTimeout = 2 * time.Second; cfg.OpenTimeout < 3*time.Minute; cfg.OpenTimeout *= 4 {
			if s, err = Open(t.Context(), cfg); status.Code(err) != codes.DeadlineExceeded {
				break
			}
		}
		if status.Code(err) != code {
			t.Errorf("%s: got %v, %v", code, s, err)
		}
	}
}

// A reader needs no right to write.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	mustFold(t, openStore(t, cfg), &store.Commit{Adds: []store.ShardDelta{add("a", 0, 3)}})
	cfg.ReadOnly, cfg.DialOptions = true, []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	if got := value(t, s, "a", 0).Count; got != int128.Of(3) {
		t.Errorf("got %d, want 3", got)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if _, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{add("a", 0, 1)}}); !errors.Is(err, store.ErrDeployment) {
		t.Errorf("Fold: got error %v, want ErrDeployment", err)
	}
	if calls := p.take(); slices.ContainsFunc(calls, func(c string) bool { return c != "Lookup" }) {
		t.Errorf("a store opened for reading made the calls %v", calls)
	}
	// People change counters and settle dead letters through readers.
	if err := s.Grow(t.Context(), []store.Growth{{Counter: "b", Shards: 7}}); err != nil {
		t.Errorf("Grow: %v", err)
	}
	if _, err := s.SetWindow(t.Context(), 16*24*time.Hour); err != nil {
		t.Errorf("SetWindow: %v", err)
	}
	if err := s.PutDeadLetters(t.Context(), []store.DeadLetter{{Key: "k"}}); err != nil {
		t.Errorf("PutDeadLetters: %v", err)
	}
}

// Processes that start at once agree on one id, and each namespace has an id of its own.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.ReadOnly = true // without probes
	ids := make([]string, 5)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.ID()
			_ = s.Close()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("ids %q, want one", ids)
		}
	}
	cfg.Namespace = "other"
	if s := openStore(t, cfg); s.ID() == ids[0] {
		t.Errorf("two namespaces have the id %s", ids[0])
	}
}

// A restarted emulator is empty. No fold that reached it may count as applied, and no total may come
// from it, even before the next Check.
func TestServerComesBackEmpty(t *testing.T) {
	t.Parallel()
	before, after := &recorder{}, &recorder{}
	host, stop := serveOn(t, before, "127.0.0.1:0")
	s := openStore(t, Config{Project: "p-1", Emulator: host})
	fold := func() error {
		_, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{newMarker()}})
		return err
	}
	if err := fold(); err != nil {
		t.Fatalf("Fold: %v", err)
	}
	stop()
	serveOn(t, after, host)
	deadline := time.Now().Add(2 * time.Minute)
	err := fold()
	for ; !errors.Is(err, store.ErrDeployment) && time.Now().Before(deadline); err = fold() {
		if err == nil {
			t.Fatal("a fold went to the empty database")
		}
	}
	if !strings.Contains(err.Error(), "another database") {
		t.Errorf("Fold: got error %v, want one about another database", err)
	}
	v := s.View()
	if got, err := v.Lookup(t.Context(), []store.Key{{Counter: "a"}}); err == nil {
		t.Errorf("a total of the empty database: %v", got)
	}
}

// Without Create, Open refuses an empty database, and writes nothing there. Against an emulator it always creates.
func TestCreate(t *testing.T) {
	t.Parallel()
	cfg := fresh(t).withDefaults()
	d := openEngine(t, cfg, protocol.Kinds)
	d.cfg.Create = false
	if err := (&Store{db: d}).learn(t.Context()); !errors.Is(err, protocol.ErrUnused) {
		t.Errorf("without Create: got error %v, want one that names --create", err)
	}
	if batch, err := d.runQuery(t.Context(), &pb.Query{}, 100, nil); len(batch.GetEntityResults()) > 0 || err != nil {
		t.Errorf("it wrote %v (%v)", batch.GetEntityResults(), err)
	}
	if c := (Config{Project: "p", Endpoint: "x:443"}).withDefaults(); !cfg.Create || c.Create && c.Emulator == "" {
		t.Error("Create is off against an emulator, or on against the service")
	}
}
