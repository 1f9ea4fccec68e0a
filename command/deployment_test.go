package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/datastore"
	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

// A deployment is what doctor examines: Google's emulators with a database, a topic and a subscription of
// the test's own, a memcached, a directory, a reader, and a fake of the admin API, which no emulator has.
// A test spoils it before it examines it.
type deployment struct {
	made     datastore.Config // the database as it was made
	database datastore.Exam
	google   *fakeAdmin
	bus      gcppubsub.Config
	cache    string
	disk     pebble.Exam
	workers  []store.Worker
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{
		made:    datastore.Config{Project: emulator.Project(), Emulator: emulator.Firestore(t)},
		google:  &fakeAdmin{kind: "DATASTORE_MODE", mode: "PESSIMISTIC", ttl: "ACTIVE"},
		cache:   emulator.Memcached(t).Host(),
		disk:    pebble.Exam{Dir: t.TempDir(), SyncFunc: fastDisk},
		workers: twoWorkers(),
	}
	admin := httptest.NewServer(d.google)
	t.Cleanup(admin.Close)
	d.database = datastore.Exam{Config: d.made, Admin: admin.URL}
	d.google.project = d.made.Project
	d.bus = gcppubsub.Config{
		Project: d.made.Project, Topic: "countmill", Subscription: "countmill", DeadLetterTopic: "countmill-dead", EmulatorHost: emulator.PubSub(t),
	}
	d.makeBus(t)
	return d
}

// fastDisk makes nothing durable: the disk of a test may be slow.
func fastDisk(*os.File) error { return nil }

// makeBus lets countmill make topics and subscriptions.
func (d *deployment) makeBus(t *testing.T) {
	t.Helper()
	bus, err := gcppubsub.Open(t.Context(), d.bus)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Close(); err != nil {
		t.Fatal(err)
	}
}

// serve starts a reader of the database, in which the workers have heartbeats.
func (d *deployment) serve(t *testing.T) (url string) {
	t.Helper()
	s, err := datastore.Open(t.Context(), d.made)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range d.workers {
		if err := s.Beat(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	var log bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(t.Context(), host{argv: []string{"reader", "--listen", "127.0.0.1:0", "--store", "rigged:"}, stdout: in, stderr: &log, stores: []backend.Store{d.rigged()}})
		_ = in.Close()
	}()
	t.Cleanup(func() { <-ended }) // the context has ended by then
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		<-ended
		t.Fatalf("the reader printed nothing: %s", &log)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	_, url, _ = strings.Cut(strings.TrimSpace(line), "listens on ")
	return url
}

// rigged is the database: doctor sees it as the test has spoilt it, and a role as it was made.
func (d *deployment) rigged() backend.Store {
	return backend.Store{
		Scheme: "rigged", Usage: "rigged:",
		Open: func(ctx context.Context, _ backend.URL, c backend.StoreConfig) (store.Store, error) {
			cfg := d.made
			cfg.ReadOnly, cfg.Logger = c.ReadOnly, c.Logger
			return datastore.Open(ctx, cfg)
		},
		Examine: func(ctx context.Context, _ backend.URL, c backend.StoreConfig, r *backend.Report) {
			e := d.database
			e.ReadOnly = c.ReadOnly
			datastore.Examine(ctx, e, r)
		},
	}
}

func (d *deployment) slowDisk() backend.Store {
	return backend.Store{
		Scheme: "disk", Usage: "disk:",
		Examine: func(ctx context.Context, _ backend.URL, _ backend.StoreConfig, r *backend.Report) {
			pebble.Examine(ctx, d.disk, r)
		},
	}
}

func (d *deployment) spoiltBus() backend.Bus {
	return backend.Bus{
		Scheme: "rigged", Usage: "rigged:",
		Examine: func(ctx context.Context, _ backend.URL, r *backend.Report) { gcppubsub.Examine(ctx, d.bus, r) },
	}
}

// examine runs doctor twice, because a role has one store.
func (d *deployment) examine(t *testing.T) doctorReport {
	t.Helper()
	var both doctorReport
	for _, args := range [][]string{
		{"--store", "rigged:", "--bus", "rigged:", "--cache", "memcached://" + d.cache, "--server", d.serve(t)},
		{"--store", "disk:"},
	} {
		r := d.doctor(t, args...)
		both.Findings = append(both.Findings, r.Findings...)
		both.Checked = append(both.Checked, r.Checked...)
		both.Unchecked = append(both.Unchecked, r.Unchecked...)
	}
	return both
}

// doctor runs it as a process would.
func (d *deployment) doctor(t *testing.T, args ...string) doctorReport {
	t.Helper()
	return readReport(t, patient(func() result {
		var out, errOut bytes.Buffer
		code := run(t.Context(), host{
			argv: append([]string{"doctor", "--json"}, args...), stdout: &out, stderr: &errOut,
			stores: []backend.Store{d.rigged(), d.slowDisk()}, buses: []backend.Bus{d.spoiltBus()},
		})
		return result{code, out.String(), errOut.String()}
	}))
}

// patient repeats doctor on a machine that is too busy for the time-outs of the server.
func patient(doctor func() result) (got result) {
	for began := time.Now(); ; {
		if got = doctor(); !strings.Contains(got.out, "the store is slow or does not answer") || time.Since(began) > 2*time.Minute {
			return got
		}
	}
}

// newerFormat writes a meta record of a format that this build does not know.
func (d *deployment) newerFormat(t *testing.T) {
	t.Helper()
	d.database.Namespace = "newer"
	conn, err := grpc.NewClient(d.made.Emulator, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	key := &pb.Key{
		PartitionId: &pb.PartitionId{ProjectId: d.made.Project, NamespaceId: "newer"},
		Path:        []*pb.Key_PathElement{{Kind: "CountmillMeta", IdType: &pb.Key_PathElement_Name{Name: "-meta"}}},
	}
	_, err = pb.NewDatastoreClient(conn).Commit(t.Context(), &pb.CommitRequest{
		ProjectId: d.made.Project, Mode: pb.CommitRequest_NON_TRANSACTIONAL,
		Mutations: []*pb.Mutation{{Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{Key: key, Properties: map[string]*pb.Value{
			"data": {ValueType: &pb.Value_BlobValue{BlobValue: []byte(`{"format":1000,"rest":"unknown"}`)}},
		}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// subscribe makes another subscription of the topic, and uses it.
func (d *deployment) subscribe(t *testing.T, s *pubsubpb.Subscription) {
	t.Helper()
	client, err := pubsub.NewClient(t.Context(), d.bus.Project, option.WithEndpoint(d.bus.EmulatorHost), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())), option.WithTelemetryDisabled())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d.bus.Subscription = "another"
	s.Name, s.Topic = "projects/"+d.bus.Project+"/subscriptions/another", "projects/"+d.bus.Project+"/topics/"+d.bus.Topic
	if _, err := client.SubscriptionAdminClient.CreateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// fakePubSub replaces Google's emulator, which does not know permissions, by Google's fake with one
// caller's permissions.
func (d *deployment) fakePubSub(t *testing.T, permissions ...string) {
	t.Helper()
	fake := pstest.NewServer()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pubsubpb.RegisterPublisherServer(s, &fake.GServer)
	pubsubpb.RegisterSubscriberServer(s, &fake.GServer)
	iampb.RegisterIAMPolicyServer(s, &rights{has: permissions})
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		served.Wait()
		_ = fake.Close()
	})
	d.bus.EmulatorHost = l.Addr().String()
	d.makeBus(t)
}

// rights are those of one caller to everything.
type rights struct {
	iampb.UnimplementedIAMPolicyServer
	has []string
}

func (r *rights) TestIamPermissions(_ context.Context, req *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	res := &iampb.TestIamPermissionsResponse{}
	for _, asked := range req.Permissions {
		for _, has := range r.has {
			if asked == has {
				res.Permissions = append(res.Permissions, asked)
			}
		}
	}
	return res, nil
}

// A fakeAdmin answers as Google's documents say of the Firestore admin API: a database, and a field of each
// kind with its TTL policy, which is missing if there is none.
type fakeAdmin struct {
	project, kind, mode string
	ttl                 string // of all kinds
	rowTTL              string // of rows of the journal, unless empty
	code                int    // of all answers, unless 0
}

func (f *fakeAdmin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	database := "/v1/projects/" + f.project + "/databases/(default)"
	field, _ := strings.CutPrefix(r.URL.Path, database+"/collectionGroups/")
	kind, known := strings.CutSuffix(field, "/fields/expire_at")
	state := f.ttl
	if kind == "CountmillJournalrow" && f.rowTTL != "" {
		state = f.rowTTL
	}
	policy := ""
	if state != "" {
		policy = fmt.Sprintf(`"ttlConfig":{"state":%q},`, state)
	}
	switch {
	case f.code != 0:
		http.Error(w, "{}", f.code)
	case r.Method == http.MethodGet && r.URL.Path == database:
		fmt.Fprintf(w, `{"name":%q,"locationId":"nam5","type":%q,"concurrencyMode":%q}`, strings.TrimPrefix(database, "/v1/"), f.kind, f.mode)
	case r.Method == http.MethodGet && known:
		fmt.Fprintf(w, `{%s"indexConfig":{}}`, policy)
	default:
		http.NotFound(w, r)
	}
}
