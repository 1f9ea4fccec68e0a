package command

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
)

// A fault is planted into a deployment that is well. finds are the findings of doctor, and there must be
// no others: the check, and words of the sentence.
type fault struct {
	plant func(t *testing.T, d *deployment)
	finds []string
}

// doctorFaults are those of the issue that asked for doctor, and some more. The limit of open files has a
// test of its own, because it needs a process of its own.
var doctorFaults = map[string]fault{
	"none": {func(*testing.T, *deployment) {}, nil},
	"the database cannot be reached": {func(t *testing.T, d *deployment) { d.database.Emulator = nobody(t) },
		[]string{"reachability of the database: connection refused"}},
	"no right to write": {func(_ *testing.T, d *deployment) {
		d.database.DialOptions = append(d.database.DialOptions, refuse("/google.datastore.v1.Datastore/Commit"))
	}, []string{"permissions of the database: PermissionDenied"}},
	"no right to read": {func(_ *testing.T, d *deployment) {
		d.database.DialOptions = append(d.database.DialOptions, refuse("/google.datastore.v1.Datastore/Lookup"))
	}, []string{"permissions of the database: PermissionDenied"}},
	"transforms are ignored": {func(t *testing.T, d *deployment) { d.database.Emulator = emulator.Datastore(t) },
		[]string{"transforms: use a database in Datastore mode of Firestore"}},
	"another database mode": {func(_ *testing.T, d *deployment) { d.google.mode = "OPTIMISTIC" },
		[]string{"database mode: concurrency mode OPTIMISTIC"}},
	"another type of database": {func(_ *testing.T, d *deployment) { d.google.kind = "FIRESTORE_NATIVE" },
		[]string{"database mode: type FIRESTORE_NATIVE"}},
	"no TTL policies": {func(_ *testing.T, d *deployment) { d.google.ttl = "" }, []string{
		"TTL policy: CountmillMarker is: none", "TTL policy: CountmillJournal is: none", "TTL policy: CountmillJournalrow is: none",
		"TTL policy: CountmillLetterref is: none", "TTL policy: CountmillWorker is: none",
	}},
	"a TTL policy is broken": {func(_ *testing.T, d *deployment) { d.google.rowTTL = "NEEDS_REPAIR" }, []string{"TTL policy: CountmillJournalrow is: NEEDS_REPAIR"}},
	"the clock is behind": {func(_ *testing.T, d *deployment) {
		d.database.NowFunc = func() time.Time { return time.Now().Add(-time.Hour) }
	}, []string{"clock: 1h0m0s behind that of the database"}},
	"the clock is ahead": {func(_ *testing.T, d *deployment) {
		d.database.NowFunc = func() time.Time { return time.Now().Add(time.Hour) }
	}, []string{"clock: 1h0m0s ahead of that of the database"}},
	"the database is of a newer version": {func(t *testing.T, d *deployment) { d.newerFormat(t) },
		[]string{"meta record: run the version that wrote it"}},

	"harmful settings of the subscription": {func(t *testing.T, d *deployment) {
		d.subscribe(t, &pubsubpb.Subscription{
			AckDeadlineSeconds: 600, EnableMessageOrdering: true, Filter: `attributes.a = "b"`,
			ExpirationPolicy: &pubsubpb.ExpirationPolicy{Ttl: durationpb.New(31 * 24 * time.Hour)},
		})
	}, []string{"subscription: a filter drops messages", "subscription: message ordering", "subscription: expires when unused",
		"ack deadline: 10m0s", "dead letters of Pub/Sub: has no dead-letter policy"}},
	"nobody reads what Pub/Sub gives up": {func(_ *testing.T, d *deployment) { d.bus.DeadLetterTopic = "" },
		[]string{"dead letters of Pub/Sub: Nobody reads the messages"}},
	"what Pub/Sub gives up goes elsewhere": {func(_ *testing.T, d *deployment) { d.bus.DeadLetterTopic = d.bus.Subscription },
		[]string{"dead letters of Pub/Sub: belongs to"}},
	"no subscription": {func(_ *testing.T, d *deployment) { d.bus.Subscription = "none" }, []string{"subscription: gcloud pubsub subscriptions create none"}},
	"no topic": {func(_ *testing.T, d *deployment) { d.bus.Topic, d.bus.Subscription = "none", "" },
		[]string{"topic: gcloud pubsub topics create none"}},
	"Pub/Sub cannot be reached": {func(t *testing.T, d *deployment) { d.bus.EmulatorHost = nobody(t) },
		[]string{"reachability of Pub/Sub: "}},
	"no right to receive": {func(t *testing.T, d *deployment) { d.fakePubSub(t, "pubsub.topics.publish") },
		[]string{"permissions of Pub/Sub: lacks pubsub.subscriptions.consume"}},
	"no right to publish": {func(t *testing.T, d *deployment) {
		d.fakePubSub(t, "pubsub.subscriptions.consume")
		d.bus.Subscription = ""
	}, []string{"permissions of Pub/Sub: lacks pubsub.topics.publish"}},

	"memcached is gone": {func(t *testing.T, d *deployment) { d.cache = nobody(t) }, []string{"memcached: does not answer"}},

	"a slow disk": {func(_ *testing.T, d *deployment) {
		d.disk.SyncFunc = func(f *os.File) error { <-time.After(60 * time.Millisecond); return f.Sync() }
	}, []string{"disk sync: A sync of the disk"}},
	"a file in place of the directory": {func(t *testing.T, d *deployment) {
		d.disk.Dir = filepath.Join(t.TempDir(), "file")
		write(t, d.disk.Dir, "")
	}, []string{"data directory: is no directory"}},
	"a disk that fails": {func(_ *testing.T, d *deployment) {
		d.disk.SyncFunc = func(*os.File) error { return os.ErrDeadlineExceeded }
	}, []string{"data directory: cannot be written"}},

	"settings differ": {func(_ *testing.T, d *deployment) {
		d.workers[1].Setup = map[string]string{"shard-rate": "2", "version": "v2"}
	}, []string{"settings of the fleet: Aggregators differ in --shard-rate: 1, 2", "settings of the fleet: different versions: v1, v2"}},
	"settings of two versions": {func(_ *testing.T, d *deployment) { d.workers[1].Settings++ },
		[]string{"settings of the fleet: different versions of the database's settings: 1, 2"}},
	"a problem of the pipeline": {func(_ *testing.T, d *deployment) { d.workers[1].AtLimit = []string{"page:/"} },
		[]string{"shards: page:/"}},
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	for name, f := range doctorFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			f.plant(t, d)
			r := d.examine(t)
			r.wantFindings(t, f.finds)
		})
	}
}

// A well deployment has every check made: none is left out in silence.
func TestDoctorChecks(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.fakePubSub(t, "pubsub.topics.publish", "pubsub.subscriptions.consume")
	r := d.examine(t)
	var got []string
	for _, c := range r.Checked {
		got = append(got, c.Check)
	}
	slices.Sort(got)
	want := []string{
		"TTL policy", "clock", "clock of the server", "data directory", "database mode", "dead letters of Pub/Sub", "disk sync", "memcached",
		"meta record", "open files", "permissions of Pub/Sub", "permissions of the database", "reachability of the database", "server",
		"settings of the fleet", "subscription", "topic", "transforms",
	}
	if got = slices.Compact(got); !slices.Equal(got, want) || len(r.Unchecked) > 0 || len(r.Findings) > 0 {
		t.Errorf("checked %q,\nwant    %q; unchecked %+v, findings %+v", got, want, r.Unchecked, r.Findings)
	}
}

// An account that may not write is a mistake where a bus is examined, too: only then it is an aggregator's.
// A reader has roles/datastore.viewer.
func TestDoctorOfAReader(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.database.DialOptions = append(d.database.DialOptions, refuse("/google.datastore.v1.Datastore/Commit"))
	r := d.doctor(t, "--store", "rigged:")
	r.wantFindings(t, nil)
	r.wantChecks(t, map[string]string{"transforms": "not checked", "permissions of the database": "may read, not write", "TTL policy": "ACTIVE"})
	d.doctor(t, "--store", "rigged:", "--bus", "rigged:").wantFindings(t, []string{"permissions of the database: PermissionDenied"})

	d.database.DialOptions = nil
	r = d.doctor(t, "--store", "rigged:")
	r.wantFindings(t, nil)
	r.wantChecks(t, map[string]string{"transforms": "", "permissions of the database": ""})
}

// A server that shows no aggregators has not shown whether their settings differ.
func TestDoctorWithoutTheFleet(t *testing.T) {
	t.Parallel()
	for overview, why := range map[string]string{`"aggregators":2`: "limited to prefixes", `"aggregators":0`: "no aggregator reports"} {
		f := newFakeServer(t, func(w http.ResponseWriter, r *http.Request) {
			answer(200, `{"roles":["reader"],"status":"ready",`+overview+`,"as_of":"`+time.Now().UTC().Format(time.RFC3339Nano)+`"}`)(w, r)
		})
		r := readReport(t, try(t, nil, "doctor", "--server", f.URL, "--json"))
		r.wantChecks(t, map[string]string{"settings of the fleet": "not checked", "server": "ready"})
		if len(r.Unchecked) != 1 || !strings.Contains(r.Unchecked[0].Why, why) {
			t.Errorf("got %+v, want %q", r.Unchecked, why)
		}
	}
}

// The URLs and variables of a role are enough: what a person types.
func TestDoctorByURLs(t *testing.T) { // not parallel: Google's variables are those of the process
	d := newDeployment(t)
	t.Setenv("DATASTORE_EMULATOR_HOST", d.database.Emulator)
	t.Setenv("PUBSUB_EMULATOR_HOST", d.bus.EmulatorHost)
	env := []string{
		"COUNTMILL_STORE=datastore://" + d.database.Project,
		"COUNTMILL_BUS=pubsub://" + d.bus.Project + "/" + d.bus.Topic + "?subscription=" + d.bus.Subscription + "&dead_letter=" + d.bus.DeadLetterTopic,
		"COUNTMILL_CACHE=memcached://" + d.cache,
	}
	server := d.serve(t)
	got := patient(func() result { return try(t, env, "doctor", "--server", server) })
	for _, want := range []string{
		"No findings.\n", "checked      transforms\n", "checked      subscription\n", "checked      memcached: " + d.cache + "\n", "checked      server: ready\n",
		"not checked  database mode: an emulator has no admin API\n",
	} {
		if got.code != 0 || got.errOut != "" || !strings.Contains(got.out, want) {
			t.Errorf("got exit %d, %q, want %q in\n%s", got.code, got.errOut, want, got.out)
		}
	}

	env = append(env, "COUNTMILL_BUS=pubsub://"+d.bus.Project+"/"+d.bus.Topic+"?subscription="+d.bus.Subscription)
	got = try(t, env, "doctor")
	want := "dead letters of Pub/Sub: Nobody reads the messages that Pub/Sub gives up and moves to projects/" + d.bus.Project + "/topics/countmill-dead.\n" +
		"  Why: Their increments are in no total, and Pub/Sub deletes them after some days.\n" +
		"  Do:  Add dead_letter=SUBSCRIPTION to --bus, with a subscription of that topic.\n" +
		"  See: https://github.com/countmill/countmill/blob/main/docs/howto/google-cloud.md\n\n"
	if got.code != 1 || got.errOut != "countmill: 1 problem\n" || !strings.HasPrefix(got.out, want) || strings.Contains(got.out, "No findings") {
		t.Errorf("got exit %d, %q\n%s\nwant first\n%s", got.code, got.errOut, got.out, want)
	}
}

func TestDoctorExits(t *testing.T) {
	t.Parallel()
	gone, dir := "http://"+nobody(t), t.TempDir()
	try(t, nil, "doctor", "--store", "pebbles:x").wantError(t, 2, "--store: unknown scheme")
	try(t, nil, "doctor", "--cache", "memcached://nowhere").wantError(t, 2, "--cache: ")
	try(t, nil, "doctor", "x").wantError(t, 2, "takes no arguments")
	try(t, nil, "doctor", "--server", newFakeServer(t, answer(401, `{"detail":"no"}`)).URL).wantError(t, 1, "--token-file")
	for _, store := range []string{"pebble:" + dir, "pebble:" + filepath.Join(dir, "not-made-yet")} {
		r := readReport(t, try(t, nil, "doctor", "--json", "--store", store)).onAnyDisk()
		r.wantFindings(t, nil)
		if i := slices.IndexFunc(r.Checked, func(c backend.Checked) bool { return c.Check == "disk sync" }); i < 0 || r.Checked[i].Note == "" {
			t.Errorf("%s: got %+v, want the time of a sync", store, r.Checked)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("doctor left %v, %v", left, err)
	}
	got := try(t, nil, "doctor", "--store", "pebble:"+dir, "--server", gone)
	if got.code != 3 || !strings.Contains(got.out, "checked      disk sync: ") || !strings.Contains(got.errOut, "countmill up") {
		t.Errorf("got %+v, want exit 3 and the findings of the store", got)
	}
	denied := newFakeServer(t, answer(401, `{"detail":"what token?"}`)).URL
	if got := try(t, nil, "doctor", "--store", "pebble:"+dir, "--server", denied); got.code != 1 || !strings.Contains(got.out, "checked      disk sync: ") || !strings.Contains(got.errOut, "what token? (HTTP 401)") {
		t.Errorf("got %+v, want exit 1 and the findings of the store", got)
	}
	if got := try(t, nil, "doctor", "--server", denied); got.code != 1 || got.out != "" {
		t.Errorf("without a backend: got %+v, want exit 1 and no report", got)
	}
	if got := try(t, nil, "doctor", "--server", gone); got.code != 3 || strings.Contains(got.out, "open files") || strings.Contains(got.out, "No findings") || !strings.Contains(got.out, "was not examined") {
		t.Errorf("without a backend: got %+v, want exit 3, and nothing of this machine", got)
	}
	if got := try(t, nil, "doctor", "--bus", "inproc:", "--cache", "memory:"); !strings.Contains(got.out, "not checked  bus: inproc: has no checks") || !strings.Contains(got.out, "not checked  cache: memory:") {
		t.Errorf("backends within a process: got %+v", got)
	}
	if got := try(t, []string{"COUNTMILL_SERVER=" + gone}, "doctor"); got.code != 3 {
		t.Errorf("with nothing but a variable: got %+v, want exit 3", got)
	}
}

// The server is another machine: its clock is in its answer.
func TestDoctorClockOfTheServer(t *testing.T) {
	t.Parallel()
	well := func(at time.Time) string {
		return `{"roles":["up"],"status":"ready","aggregators":1,"as_of":"` + at.UTC().Format(time.RFC3339Nano) + `"}`
	}
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		f := newFakeServer(t, func(w http.ResponseWriter, r *http.Request) { answer(200, well(time.Now().Add(off)))(w, r) })
		readReport(t, try(t, nil, "doctor", "--server", f.URL, "--json")).wantFindings(t, []string{"clock: differ by 1h0m0s"})
	}
	f := newFakeServer(t, func(w http.ResponseWriter, r *http.Request) { answer(200, well(time.Now().Add(-time.Second)))(w, r) })
	readReport(t, try(t, nil, "doctor", "--server", f.URL, "--json")).wantFindings(t, nil)
}

// The admin API may refuse, or answer something else. Then doctor says which checks it left out.
func TestDoctorWithoutTheAdminAPI(t *testing.T) {
	t.Parallel()
	for code, why := range map[int]string{http.StatusForbidden: "grant roles/datastore.viewer", http.StatusInternalServerError: "500"} {
		d := newDeployment(t)
		d.google.code = code
		r := d.examine(t)
		r.wantFindings(t, nil)
		var left []string
		for _, u := range r.Unchecked {
			if strings.Contains(u.Why, why) {
				left = append(left, u.Check)
			}
		}
		if !slices.Equal(left, []string{"database mode", "TTL policy"}) {
			t.Errorf("%d: got %+v, want two checks left out because of %q", code, r.Unchecked, why)
		}
	}
}

// Go raises a soft limit by itself, so only the hard one is a fault.
func TestDoctorFewFiles(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds and runs the command")
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	for limit, finds := range map[string][]string{"1000": {"open files: may have 1000 files"}, "4096": nil} {
		c := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n "$0" && exec "$@"`, limit, binary, "doctor", "--json", "--store", "pebble:"+t.TempDir())
		var out, errOut strings.Builder
		c.Stdout, c.Stderr = &out, &errOut
		_ = c.Run() // the exit code says the same
		r := readReport(t, result{c.ProcessState.ExitCode(), out.String(), errOut.String()}).onAnyDisk()
		r.wantFindings(t, finds)
		r.wantChecks(t, map[string]string{"open files": "at most " + limit + " for doctor and for what its shell starts; /proc/PID/limits has the limit of a running process"})
	}
}

// A doctorReport is what doctor --json writes.
type doctorReport struct{ backend.Report }

// readReport reads the answer of doctor --json, and compares its exit code with it.
func readReport(t *testing.T, got result) doctorReport {
	t.Helper()
	var r doctorReport
	if err := json.Unmarshal([]byte(got.out), &r.Report); err != nil || r.Findings == nil || r.Unchecked == nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if code := min(len(r.Findings), 1); got.code != code || (got.errOut == "") != (code == 0) {
		t.Errorf("got exit %d and %q, want exit %d", got.code, got.errOut, code)
	}
	return r
}

// onAnyDisk leaves a slow disk out: that of a test may be slow.
func (r doctorReport) onAnyDisk() doctorReport {
	r.Findings = slices.DeleteFunc(r.Findings, func(f backend.Finding) bool { return f.Check == "disk sync" })
	return r
}

// wantChecks compares notes of checks. "not checked" is that of a check that was left out.
func (r doctorReport) wantChecks(t *testing.T, want map[string]string) {
	t.Helper()
	for check, note := range want {
		var got []string
		for _, c := range r.Checked {
			if c.Check == check {
				got = append(got, c.Note)
			}
		}
		for _, u := range r.Unchecked {
			if u.Check == check {
				got = append(got, "not checked")
			}
		}
		if !slices.Equal(got, []string{note}) {
			t.Errorf("%s: got %q, want %q once", check, got, note)
		}
	}
}

// wantFindings compares check and words of each finding. The rest of a finding must be there too.
func (r doctorReport) wantFindings(t *testing.T, want []string) {
	t.Helper()
	var missed []string
	found := slices.Clone(r.Findings)
	for _, w := range want {
		check, words, _ := strings.Cut(w, ": ")
		i := slices.IndexFunc(found, func(f backend.Finding) bool { return f.Check == check && strings.Contains(f.What+f.Do, words) })
		if i < 0 {
			missed = append(missed, w)
			continue
		}
		found = slices.Delete(found, i, i+1)
	}
	if len(missed)+len(found) > 0 {
		t.Errorf("doctor missed %q, and found beside what was planted %+v", missed, found)
	}
	for _, f := range r.Findings {
		if clock := f.Check == "clock"; clock != (f.Page == "runbook.md#countmillclockoff") {
			t.Errorf("%+v: want the page of clocks for a clock, and for nothing else", f)
		}
		page, _, _ := strings.Cut(f.Page, "#")
		if _, err := os.Stat(filepath.Join("../docs", page)); err != nil || f.Page == "" || f.Why == "" || f.Do == "" {
			t.Errorf("%v: %+v has no reason, remedy or page", err, f)
		}
	}
}

// refuse answers a method as Google does without the right to it.
func refuse(method string) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, called string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if called == method {
			return status.Error(codes.PermissionDenied, "Missing or insufficient permissions.")
		}
		return invoke(ctx, called, req, reply, cc, opts...)
	})
}

// nobody is a HOST:PORT that refuses connections.
func nobody(t *testing.T) string {
	t.Helper()
	port, err := child.KeepPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Free() })
	return port.Addr()
}

// twoWorkers are aggregators that are well.
func twoWorkers() []store.Worker {
	now := time.Now()
	one := store.Worker{
		ID: "one", LastCommit: now, Expires: now.Add(time.Hour), Settings: 1,
		Setup: map[string]string{"shard-rate": "1", "version": "v1"},
	}
	two := one
	two.ID = "two"
	return []store.Worker{one, two}
}
