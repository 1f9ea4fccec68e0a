package appengine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/datastore"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// An application is one of the article.
type application struct {
	*writer
	Source
}

func newApplication(t *testing.T) *application {
	t.Helper()
	host := emulator.Firestore(t)
	s := Source{Project: emulator.Project(), Namespace: "ns", options: at(host)}
	return &application{newWriter(t, host, s.Project, s.Namespace), s}
}

// adopt runs the command, and returns its exit code and output.
func (a *application) adopt(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var text bytes.Buffer
	code = run(t.Context(), append([]string{"--project", a.Project, "--namespace", a.Namespace, "--java", "votes"}, args...), &text, &text, a.options...)
	return code, strings.Join(strings.Fields(text.String()), " ")
}

// serve runs countmill until the test ends, and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	r, w := io.Pipe()
	go func() {
		ended <- command.Main(command.Context(ctx), command.Args("up", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data")), command.Environ(nil), command.Streams(nil, w, io.Discard))
		w.Close()
	}()
	line := make([]byte, 1000)
	n, err := r.Read(line)
	if err != nil {
		t.Fatalf("countmill ended with %d", <-ended)
	}
	go io.Copy(io.Discard, r)
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	_, server, _ := strings.Cut(string(line[:n]), "listens on ")
	server, _, _ = strings.Cut(server, " ")
	return server
}

func call(t *testing.T, server string, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := command.Main(command.Context(t.Context()), command.Args(args...), command.Environ([]string{"COUNTMILL_SERVER=" + server}), command.Streams(nil, &out, &errOut)); code != 0 {
		t.Fatalf("%q: exit %d, %s", args, code, errOut.String())
	}
	return out.String()
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	a, server, dir := newApplication(t), serve(t), t.TempDir()
	want := func(totals string, names ...string) {
		t.Helper()
		if got := call(t, server, append([]string{"get"}, names...)...); got != totals {
			t.Errorf("got %q, want %q", got, totals)
		}
	}
	a.Python("page", 1, 2, 39)
	a.Java("votes", 5, 5)
	a.JDO("votes", 1, 7)
	a.Go(50, 60)
	a.Simple(1, 2, 3)
	a.DB("zero", 0, 0)
	a.DB("huge", 9007199254740991)

	code, got := a.adopt(t, "--dry-run")
	for _, line := range []string{"COUNTER LAYOUT SHARDS TOTAL IMPORT", "GeneralCounterShard go (grand total) 2 110 110", "SimpleCounterShard simple 3 6 6",
		"huge db 1 9007199254740991 9007199254740991", "page python 3 42 42", "votes java, jdo 3 17 17", "zero db 2 0 0",
		`only their grand total can be adopted, as "GeneralCounterShard" (--go-total)`, "6 counters, 1 of them with nothing to import"} {
		if code != 0 || !strings.Contains(got, line) {
			t.Errorf("--dry-run ended with %d, or has no line %q:\n%s", code, line, got)
		}
	}
	first, again, second, third := filepath.Join(dir, "1.ndjson"), filepath.Join(dir, "2.ndjson"), filepath.Join(dir, "3.ndjson"), filepath.Join(dir, "4.ndjson")
	adopt := func(args ...string) {
		t.Helper()
		if code, got := a.adopt(t, args...); code != 0 {
			t.Fatalf("%q: exit %d, %s", args, code, got)
		}
	}
	fails := func(want string, args ...string) {
		t.Helper()
		if code, got := a.adopt(t, args...); code == 0 || !strings.Contains(got, want) {
			t.Errorf("%q: exit %d, %s, want %q", args, code, got, want)
		}
	}
	adopt("--snapshot", first)
	adopt("--snapshot", again)
	fails("exists; import it", "--snapshot", first)
	fails("was not imported to its end", "--since", first, "--snapshot", second)
	totals := "42\tpage\n17\tvotes\n110\tGeneralCounterShard\n6\tSimpleCounterShard\n0\tzero\n9007199254740991\thuge\n"
	names := []string{"page", "votes", "GeneralCounterShard", "SimpleCounterShard", "zero", "huge"}
	for _, snapshot := range []string{first, again} { // the ids are the same
		call(t, server, "import", snapshot)
		want(totals, names...)
	}

	a.Python("page", 1, 2, 139, 10)
	a.Python("new", 5)
	adopt("--since", first, "--snapshot", second)
	call(t, server, "import", second)
	want("152\tpage\n5\tnew\n17\tvotes\n", "page", "new", "votes")
	a.Python("new", 3) // somebody set it back
	adopt("--since", first, "--since", second, "--snapshot", third)
	call(t, server, "import", third)
	want("152\tpage\n3\tnew\n17\tvotes\n", "page", "new", "votes")
	if err := a.client.Delete(t.Context(), &datastore.Key{Kind: kindGeneral, Name: "shard-new-0", Namespace: "ns"}); err != nil {
		t.Fatal(err)
	}
	fails(`counter "new" of --since is not in the source any more`, "--since", second, "--dry-run")
}

// Growth is that since rows which were all counted, and which are those of the file.
func TestSince(t *testing.T) {
	t.Parallel()
	server, dir, a := serve(t), t.TempDir(), &adoption{}
	imported := func(name string, total int64) (path string, code int) {
		var rows, out bytes.Buffer
		if err := a.writeRows(&rows, []*adopted{{counter: "other", delta: 1}, {counter: "page", delta: total}}, ""); err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, rows.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path, command.Main(command.Context(t.Context()), command.Args("import", path, "--server", server), command.Environ(nil), command.Streams(nil, &out, &out))
	}
	since := func(path, want string) {
		t.Helper()
		a.since = []string{path}
		sums, _, err := a.earlier()
		if got := fmt.Sprint(sums["page"], err); !strings.HasSuffix(got, want) {
			t.Errorf("--since %s: got %s, want %s", path, got, want)
		}
	}
	counted, code := imported("1.ndjson", 100)
	if since(counted, "100 <nil>"); code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
	again, code := imported("2.ndjson", 120)
	if since(again, "1 of its rows were not counted: name a file whose rows were all counted"); code != 1 {
		t.Errorf("exit %d, want 1: its id was counted with 100", code)
	}
	text, err := os.ReadFile(again)
	if err == nil {
		err = os.WriteFile(counted, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	since(counted, "it has changed since its import: restore it")
}

func TestAdoptLeavesNothingOutSilently(t *testing.T) {
	t.Parallel()
	a, snapshot := newApplication(t), filepath.Join(t.TempDir(), "s.ndjson")
	if code, got := a.adopt(t, "--snapshot", snapshot); code != 1 || !strings.Contains(got, `there are no counters of the article in namespace "ns"`) {
		t.Errorf("an empty source: exit %d, %s", code, got)
	}
	a.Python("good", 1)
	a.Python(" bad", 1)
	a.DB("huge", -9007199254740991, -1)
	a.Put("GeneralCounterShard", "whatever", 0)
	for _, args := range [][]string{{"--dry-run"}, {"--snapshot", snapshot}} {
		code, got := a.adopt(t, args...)
		for _, want := range []string{"GeneralCounterShard,whatever: is in no layout", `python counter " bad"`,
			`counter "huge": -9007199254740992 is more than one increment can add`, "3 entities or counters cannot be adopted"} {
			if code != 1 || !strings.Contains(got, want) {
				t.Errorf("%s: exit %d, %s, want %q", args, code, got, want)
			}
		}
	}
	if _, err := os.Stat(snapshot); err == nil {
		t.Error("a refused adoption left a file")
	}
	if code, got := a.adopt(t, "--snapshot", snapshot, "--skip-unknown"); code != 0 {
		t.Errorf("--skip-unknown: exit %d, %s", code, got)
	}
	rows, err := os.ReadFile(snapshot)
	if err != nil || strings.Count(string(rows), "\n") != 1 || !strings.Contains(string(rows), `"good"`) {
		t.Errorf("the snapshot has %q, %v; want a row of good", rows, err)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                   "--project is missing",
		"--project p":                        "--snapshot is missing",
		"--project p --dry-run x":            `unexpected argument "x"`,
		"--project p --dry-run --go-total =": "--go-total",
		"--projekt p":                        "projekt",
	} {
		var out bytes.Buffer
		if code := Main(t.Context(), strings.Fields(args), &out, &out); code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%q: exit %d, %s, want %q", args, code, out.String(), want)
		}
	}
	var out bytes.Buffer
	if code := Main(t.Context(), []string{"--help"}, &out, &out); code != 0 || !strings.Contains(out.String(), "--since all.ndjson") || !strings.Contains(out.String(), "-skip-unknown") {
		t.Errorf("--help: exit %d, %s", code, out.String())
	}
}

// The id of a row is of the source, the counter and the snapshots before it, not of the total.
func TestIDs(t *testing.T) {
	t.Parallel()
	of := func(project, namespace, counter, label string) string {
		return (&adoption{Source: Source{Project: project, Namespace: namespace}}).id(counter, label)
	}
	seen := make(map[string]bool)
	for _, fields := range [][4]string{{"p", "n", "c", ""}, {"p", "n", "d", ""}, {"p", "n", "c", "x"}, {"p", "m", "c", ""}, {"pn", "", "c", ""}} {
		seen[of(fields[0], fields[1], fields[2], fields[3])] = true
	}
	if len(seen) != 5 || !seen[of("p", "n", "c", "")] {
		t.Errorf("5 rows have %d ids, or the first has two", len(seen))
	}
}
