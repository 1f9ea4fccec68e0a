package command

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/internal/transfer"
)

// An ingestServer takes increments as the real one does with a key that it knows.
type ingestServer struct {
	*fakeServer
	mu     sync.Mutex
	bodies map[string][]string // by key; "" for requests without one
}

// newIngestServer answers with first before it begins to work.
func newIngestServer(t *testing.T, first ...http.HandlerFunc) *ingestServer {
	t.Helper()
	s := &ingestServer{bodies: make(map[string][]string)}
	s.fakeServer = newFakeServer(t, append(first, func(w http.ResponseWriter, _ *http.Request) {})...)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key := r.Header.Get("Idempotency-Key")
		s.mu.Lock()
		s.bodies[key] = append(s.bodies[key], string(body))
		var h http.HandlerFunc
		if len(s.script) > 1 {
			h, s.script = s.script[0], s.script[1:]
		}
		s.mu.Unlock()
		if h != nil {
			h(w, r)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"accepted":%d}`, strings.Count(string(body), "\n"))
	})
	return s
}

// frozen fails if two requests with one key differ, and returns the number of keys.
func (s *ingestServer) frozen(t *testing.T) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for key, bodies := range s.bodies {
		if key == "" {
			continue
		}
		n++
		for _, body := range bodies {
			if body != bodies[0] {
				t.Errorf("the key %s came with two bodies:\n%.200s\n%.200s", key, bodies[0], body)
			}
		}
	}
	return n
}

func importFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text)
	return path
}

func csvRows(n int) string {
	var b strings.Builder
	b.WriteString("counter,delta\n")
	for i := range n {
		fmt.Fprintf(&b, "c%d,%d\n", i%1000, i%7+1)
	}
	return b.String()
}

// blockKey is the key of a block of a file with that hash, in that form.
func blockKey(sum, form string, number int) string {
	hash := sha256.Sum256([]byte(form))
	return fmt.Sprintf("import-3:%s:%x:%d", sum, hash[:8], number)
}

func TestImportSendsFrozenBlocks(t *testing.T) {
	t.Parallel()
	text := csvRows(25_000)
	path := importFile(t, "a.csv", text)
	s := newIngestServer(t)
	want := result{0, path + ": 25000 rows are counted, each once\n", ""}
	if got := try(t, nil, "import", path, "--server", s.URL); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	for i := range 3 {
		bodies := s.bodies[blockKey(sum, "--format csv", i)]
		if len(bodies) != 1 || strings.Count(bodies[0], "\n") != []int{10_000, 10_000, 5_000}[i] || strings.Count(bodies[0], `"time":`) != 1 {
			t.Errorf("block %d: got %d bodies with %.100q", i, len(bodies), bodies)
		}
	}
	// Another day, another name, and no memory but the state's.
	again := filepath.Join(t.TempDir(), "b.txt")
	if err := os.Rename(path, again); err != nil {
		t.Fatal(err)
	}
	if got := try(t, nil, "import", again, "--format", "csv", "--state", path+transfer.StateSuffix, "--server", s.URL, "--json"); got.code != 0 || !strings.Contains(got.out, `"repeated":true`) {
		t.Errorf("second run: got %+v", got)
	}
	if n := s.frozen(t); n != 3 {
		t.Errorf("got %d keys after two runs, want 3", n)
	}
}

func TestImportRepeatsWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	path := importFile(t, "a.csv", csvRows(10))
	s := newIngestServer(t, answer(503, "{}"), answer(504, "{}"), cut, answer(500, "{}"), answer(429, "{}"), answer(502, "{}"), answer(408, "{}"))
	if got := try(t, nil, "import", path, "--server", s.URL); got.code != 0 || !strings.Contains(got.out, "10 rows are counted, each once") {
		t.Errorf("got %+v", got)
	}
	if n := s.frozen(t); n != 1 {
		t.Errorf("got %d keys, want 1", n)
	}
}

func TestImportSaysHowItEnded(t *testing.T) {
	t.Parallel()
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, test := range map[string]struct {
		script []http.HandlerFunc
		want   string
		state  bool // is left behind
	}{
		"refused":      {[]http.HandlerFunc{answer(400, `{"detail":"delta is 0"}`)}, "nothing was counted: the request of lines 2 to 11 was refused: delta is 0 (HTTP 400)", false},
		"forbidden":    {[]http.HandlerFunc{answer(403, `{"detail":"not you"}`)}, "nothing was counted: the request of lines 2 to 11 was refused: not you", false},
		"away":         {[]http.HandlerFunc{answer(503, `{"detail":"away"}`)}, "nothing was counted: the request of lines 2 to 11 was not accepted within --timeout TIMEOUT: away", false},
		"unknown":      {[]http.HandlerFunc{answer(504, `{"detail":"who knows"}`)}, "0 of 10 rows are counted, and perhaps some more: ", true},
		"silent":       {[]http.HandlerFunc{hang}, "Run it again with the same rows", true},
		"no countmill": {[]http.HandlerFunc{answer(200, "<html>")}, "is that a countmill?", true},
		"too few":      {[]http.HandlerFunc{answer(202, `{"accepted":9}`)}, "is that a countmill?", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := importFile(t, "a.csv", csvRows(10))
			f := newFakeServer(t, test.script...)
			timeout := enough(t)
			test.want = strings.ReplaceAll(test.want, "TIMEOUT", timeout)
			got := try(t, nil, "import", path, "--server", f.URL, "--timeout", timeout)
			if lines := strings.Split(strings.TrimSpace(got.errOut), "\n"); got.code != 1 || got.out != "" || !strings.Contains(lines[len(lines)-1], test.want) {
				t.Errorf("got %+v, want exit 1 and %q", got, test.want)
			}
			if _, err := os.Stat(path + transfer.StateSuffix); (err == nil) != test.state {
				t.Errorf("the state is there: %t, want %t", err == nil, test.state)
			}
		})
	}
	path := importFile(t, "a.csv", csvRows(10))
	if got := try(t, nil, "import", path, "--server", "127.0.0.1:1", "--timeout", enough(t)); got.code != 1 || !strings.Contains(got.errOut, "start one with `countmill up`") {
		t.Errorf("no server: got %+v", got)
	}
}

// enough is a time-out that no call of a server which answers at once comes near, on this machine
// as it is now, and that is waited for to its end.
func enough(t *testing.T) string {
	t.Helper()
	f := newFakeServer(t, answer(503, "{}"))
	begin := time.Now()
	for range 10 {
		try(t, nil, "get", "a", "--server", f.URL)
	}
	return (5*time.Second + 20*time.Since(begin)).Round(time.Second).String()
}

const someBad = "counter,delta,id\na,1,\nb,0,\nc,2,i\nd,x,\nc,3,i\n"

func TestImportRefusesBadRows(t *testing.T) {
	t.Parallel()
	s := newIngestServer(t)
	one := importFile(t, "one.csv", "counter,delta\na,1\nb,0\n")
	try(t, nil, "import", one, "--server", s.URL).wantError(t, 1,
		one+": line 3: delta is 0 (limit: not 0); 1 of 2 rows cannot be counted, and nothing was: fix them")
	path := importFile(t, "a.csv", someBad)
	got := try(t, nil, "import", path, "--server", s.URL)
	if got.code != 1 || strings.Count(got.errOut, "\n") != 4 || !strings.Contains(got.errOut, "\n"+path+": line 5: delta ") || !strings.Contains(got.errOut, "3 of 5 rows") {
		t.Errorf("got %+v, want three lines of rows and one of the end", got)
	}
	if len(s.bodies) != 0 {
		t.Errorf("sent %v", s.bodies)
	}
	for _, path := range []string{one, path} {
		if _, err := os.Stat(path + transfer.StateSuffix); err == nil {
			t.Errorf("%s has a state", path)
		}
	}
}

func TestImportLeavesBadRowsOut(t *testing.T) {
	t.Parallel()
	s := newIngestServer(t)
	path := importFile(t, "a.csv", someBad)
	rejects := filepath.Join(t.TempDir(), "rejects.ndjson")
	got := try(t, nil, "import", path, "--server", s.URL, "--skip-bad", rejects)
	if want := (result{0, path + ": 2 rows are counted, each once, 3 left out and written to " + rejects + "\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	text, err := os.ReadFile(rejects)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for line := range strings.Lines(string(text)) {
		var bad struct {
			Line        int
			Reason, Row string
		}
		if err := json.Unmarshal([]byte(line), &bad); err != nil || bad.Reason == "" || bad.Row == "" {
			t.Errorf("rejects hold %q: %v", line, err)
		}
		lines = append(lines, bad.Line)
	}
	if diff := cmp.Diff([]int{3, 5, 6}, lines); diff != "" {
		t.Errorf("lines of the rejects (-want +got):\n%s", diff)
	}
	if _, err := transfer.ImportedAll(path); err == nil || !strings.Contains(err.Error(), "3 of its rows were not counted") {
		t.Errorf("all rows are imported: %v", err)
	}
	if ids := s.bodies[""]; len(ids) != 1 || !strings.HasPrefix(ids[0], `{"counter":"c","delta":2,"id":"i","time":`) {
		t.Errorf("the row with an id was sent as %q", ids)
	}
	try(t, nil, "import", path, "--server", s.URL, "--skip-bad", path).wantError(t, 2, "is the file that is imported")
	if text, _ := os.ReadFile(path); string(text) != someBad {
		t.Errorf("the file is %q now", text)
	}
}

// stateOf is what FILE.countmill-import holds.
func stateOf(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path + transfer.StateSuffix)
	if err != nil {
		t.Fatal(err)
	}
	state := make(map[string]any)
	if err := json.Unmarshal(text, &state); err != nil || state["finished"] == nil {
		t.Fatalf("got state %s, %v", text, err)
	}
	return state
}

func began(t *testing.T, path string) string { return fmt.Sprint(stateOf(t, path)["began"]) }

// beganAt changes when the import of a file began, and returns the file's SHA-256.
func beganAt(t *testing.T, path string, at time.Time) string {
	t.Helper()
	state := stateOf(t, path)
	state["began"] = at.UTC().Truncate(time.Second)
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path+transfer.StateSuffix, string(text))
	return fmt.Sprint(state["sha256"])
}

func TestImportBeyondTheWindow(t *testing.T) {
	t.Parallel()
	s := newIngestServer(t)
	path := importFile(t, "a.csv", csvRows(10))
	if got := try(t, nil, "import", path, "--server", s.URL); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	sum := beganAt(t, path, time.Now().Add(-191*time.Hour))
	sent := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.bodies[blockKey(sum, "--format csv", 0)])
	}
	if got := try(t, nil, "import", path, "--server", s.URL); got.code != 0 || sent() != 2 {
		t.Errorf("within the deduplication window: got %+v and %d requests", got, sent())
	}
	if body := s.bodies[blockKey(sum, "--format csv", 0)][1]; !strings.Contains(body, `"time":"`+began(t, path)+`"`) {
		t.Errorf("the second import says another time than the first: %.100s", body)
	}
	for _, test := range []struct {
		began time.Time
		env   []string
		args  []string
	}{
		{began: time.Now().Add(-193 * time.Hour)},
		{began: time.Now().Add(-2 * time.Hour), args: []string{"--dedup-window", "1h"}},
		{began: time.Now().Add(-2 * time.Hour), env: []string{"COUNTMILL_DEDUP_WINDOW=1h"}},
	} {
		beganAt(t, path, test.began)
		try(t, test.env, append([]string{"import", path, "--server", s.URL}, test.args...)...).wantError(t, 1, "longer ago than the server remembers")
	}
	if sent() != 2 {
		t.Errorf("got %d requests, want 2", sent())
	}
	// Rows leave the window before the import does.
	old := time.Now().Add(-9 * 24 * time.Hour).UTC().Format(time.RFC3339)
	path = importFile(t, "old.csv", "counter,delta,time\na,1,\nb,1,"+old+"\n")
	if got := try(t, nil, "import", path, "--server", s.URL, "--dedup-window", "20d"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	sum = beganAt(t, path, time.Now().Add(-4*24*time.Hour))
	try(t, nil, "import", path, "--server", s.URL).wantError(t, 1, path+" has rows of "+old+", which the server takes no longer (--dedup-window 192h0m0s)")
	if n := len(s.bodies[blockKey(sum, "--format csv", 0)]); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
}

func TestImportOfAnotherFile(t *testing.T) {
	t.Parallel()
	s := newIngestServer(t)
	path := importFile(t, "a.csv", csvRows(10))
	try(t, nil, "import", path, "--server", s.URL)
	write(t, path, csvRows(11))
	try(t, nil, "import", path, "--server", s.URL).wantError(t, 1, "has changed since its import began")
	write(t, path+transfer.StateSuffix, "not a state")
	try(t, nil, "import", path, "--server", s.URL).wantError(t, 1, "is not the state of an import")
	write(t, path+transfer.StateSuffix, `{"cut":2,"sha256":"x","began":"`+time.Now().Format(time.RFC3339)+`"}`)
	try(t, nil, "import", path, "--server", s.URL).wantError(t, 1, "cuts files in another way")
	write(t, path, csvRows(10))
	try(t, nil, "import", path, "--server", s.URL, "--state", "/proc/no/such").wantError(t, 1, "--state names another place")
	if n := s.frozen(t); n != 1 {
		t.Errorf("got %d keys, want 1", n)
	}
}

// A key belongs to the name of a token, which only the server knows.
func TestImportWithAnotherToken(t *testing.T) {
	t.Parallel()
	path := importFile(t, "a.csv", csvRows(10))
	s := newIngestServer(t)
	with := func(args ...string) result {
		return try(t, nil, append([]string{"import", path, "--server", s.URL}, args...)...)
	}
	for range 2 {
		if got := with("--token", "one"); got.code != 0 {
			t.Errorf("got %+v", got)
		}
	}
	with().wantError(t, 1, "began with another token")
	with("--token", "two").wantError(t, 1, "began with another token")
	for _, args := range [][]string{{"--token", "two", "--same-caller"}, {"--token", "two"}} {
		if got := with(args...); got.code != 0 {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if text, err := os.ReadFile(path + transfer.StateSuffix); err != nil || strings.Contains(string(text), "two") {
		t.Errorf("the state is %s, %v", text, err)
	}
}

// A log that grows meanwhile is imported as it was. If a file is overwritten meanwhile, the
// import fails.
func TestImportOfAFileThatChanges(t *testing.T) {
	t.Parallel()
	// All requests that are under way at once wait for the change, and are repeated.
	during := func(change func() error) *ingestServer {
		var once sync.Once
		h := func(w http.ResponseWriter, _ *http.Request) {
			once.Do(func() {
				if err := change(); err != nil {
					t.Error(err)
				}
			})
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return newIngestServer(t, slices.Repeat([]http.HandlerFunc{h}, 4)...)
	}
	appended := importFile(t, "a.csv", csvRows(120_000))
	s := during(func() error {
		f, err := os.OpenFile(appended, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("more,1\nmore,not a number\n")
			f.Close()
		}
		return err
	})
	if got := try(t, nil, "import", appended, "--server", s.URL); got.code != 0 || !strings.Contains(got.out, "120000 rows are counted") {
		t.Errorf("appended to: got %+v", got)
	}
	over := importFile(t, "b.csv", csvRows(120_000))
	s = during(func() error {
		text := []byte(csvRows(120_000))
		text[len(text)-2] = '9' // of the last row
		return os.WriteFile(over, text, 0o600)
	})
	if got := try(t, nil, "import", over, "--server", s.URL); got.code != 1 || !strings.Contains(got.errOut, "changed during the import") {
		t.Errorf("written over: got %+v", got)
	}
}

func TestImportFromStandardInput(t *testing.T) {
	t.Parallel()
	s := newIngestServer(t)
	run := func(text string, args ...string) result {
		var out, errOut bytes.Buffer
		code := run(t.Context(), host{argv: append([]string{"import", "-", "--server", s.URL}, args...), stdin: strings.NewReader(text), stdout: &out, stderr: &errOut})
		return result{code, out.String(), errOut.String()}
	}
	for range 2 {
		if got := run(csvRows(10), "--format", "csv"); got != (result{0, "-: 10 rows are counted, each once\n", ""}) {
			t.Errorf("got %+v", got)
		}
	}
	if n := s.frozen(t); n != 1 {
		t.Errorf("the same rows twice have %d keys, want 1", n)
	}
	run(csvRows(10)).wantError(t, 2, "--format: choose csv or ndjson")
}

func TestImportArguments(t *testing.T) {
	t.Parallel()
	path := importFile(t, "a.csv", csvRows(1))
	try(t, nil, "import").wantError(t, 2, "name one FILE")
	try(t, nil, "import", path, path).wantError(t, 2, "name one FILE")
	try(t, nil, "import", importFile(t, "a.log", csvRows(1))).wantError(t, 2, "does not end in .csv")
	try(t, nil, "import", path, "--columns", "path").wantError(t, 2, "--columns: must be like counter=path")
	try(t, nil, "import", path, "--columns", "counter=a", "--format", "ndjson").wantError(t, 2, "--columns is given without CSV")
	for _, zone := range []string{"Local", "", "Mars/Olympus"} {
		try(t, nil, "import", path, "--tz", zone).wantError(t, 2, "--tz: must be a time zone such as Asia/Kolkata")
	}
	try(t, nil, "import", path, "--format", "xml").wantError(t, 2, `--format: must be one of csv, ndjson, got "xml"`)
	try(t, nil, "import", path, "--dedup-window", "0s").wantError(t, 2, "--dedup-window: must be a duration such as 250ms, 2h or 8d from 1s to 8784h")
	try(t, []string{"COUNTMILL_DEDUP_WINDOW=x"}, "import", path).wantError(t, 2, "COUNTMILL_DEDUP_WINDOW: must be a duration")
	try(t, nil, "import", "/no/such.csv").wantError(t, 1, "no such file")
	try(t, nil, "import", filepath.Dir(path), "--format", "csv").wantError(t, 1, "is a directory")
	try(t, nil, "import", importFile(t, "empty.csv", "")).wantError(t, 1, "it is empty")
}

func TestProgressLines(t *testing.T) {
	t.Parallel()
	p := &progress{out: io.Discard, verb: "importing", what: "rows", total: 1000}
	if got, want := p.line(0), "importing 0 %  0 rows"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Add(250, 10)
	if got, want := p.line(5*time.Second), "importing 25 %  10 rows  2/s  15s left"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.live = true
	p.Wait("away")
	if got, want := p.line(5*time.Second), "importing [######..................] 25 %  10 rows  2/s  15s left  waiting"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Add(800, 0)
	if got, want := p.line(0), "importing [########################] 100 %  10 rows"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	unknown := &progress{verb: "reading", what: "shards"}
	unknown.Add(0, 3)
	if got, want := unknown.line(time.Second), "reading  3 shards  3/s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgressInALog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := startProgress(&out, "importing", "rows", 10)
	p.Wait("away")
	p.Wait("still away")
	p.Add(1, 1)
	p.Wait("away again")
	p.Stop()
	if got, want := out.String(), "countmill: waiting: away\ncountmill: waiting: away again\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Rows whose ids are taken are dropped and named, and the import goes on.
func TestImportGoesOnWithoutReusedIDs(t *testing.T) {
	t.Parallel()
	var text, conflicts strings.Builder
	text.WriteString("id,counter,delta\n,plain,1\n")
	for i := range 10_050 {
		fmt.Fprintf(&text, "e%d,a,1\n", i)
	}
	for i := range 12 {
		fmt.Fprintf(&conflicts, `,{"position":%d,"id":"e%d"}`, 2*i, 2*i)
	}
	problem := fmt.Sprintf(`{"type":"urn:countmill:problem:ids-reused","detail":"some","conflicts":[%s]}`, conflicts.String()[1:])
	sent := func(s *ingestServer) (n int) {
		for _, bodies := range s.bodies {
			n += len(bodies)
		}
		return n
	}
	for _, asJSON := range []bool{false, true} {
		path := importFile(t, "a.csv", text.String())
		s := newIngestServer(t)
		work := s.Config.Handler
		var once sync.Once
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			first := false
			if r.Header.Get("Idempotency-Key") == "" && r.ContentLength > 10_000 {
				once.Do(func() { first = true })
			}
			if first {
				w.WriteHeader(http.StatusUnprocessableEntity)
				io.WriteString(w, problem)
				return
			}
			work.ServeHTTP(w, r)
		})
		args := []string{"import", path, "--server", s.URL}
		out := path + ": 10039 rows are counted, each once\n"
		if asJSON {
			args, out = append(args, "--json"), `"accepted":10039,"left_out":0,"conflicts":12,`
		}
		got := try(t, nil, args...)
		want := `not counted, because other deltas were counted under their ids: 12 of 10051 rows (counter "a", id "e0"; counter "a", id "e2"; `
		if got.code != 1 || !strings.Contains(got.out, out) || !strings.Contains(got.errOut, want) || !strings.Contains(got.errOut, `id "e18"; ...)`) || strings.Contains(got.errOut, "e20") {
			t.Errorf("got %+v, want exit 1, %q and %q", got, out, want)
		}
		if _, err := transfer.ImportedAll(path); err == nil || !strings.Contains(err.Error(), "12 of its rows were not counted") {
			t.Errorf("all rows are imported: %v", err)
		}
		if sent(s) < 2 {
			t.Errorf("%d further requests, want the rest of the file", sent(s))
		}
		if got := try(t, nil, args...); got.code != 0 { // the server has forgotten the others
			t.Errorf("got %+v", got)
		}
		if _, err := transfer.ImportedAll(path); err != nil {
			t.Error(err)
		}
	}
}
