package command

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/embedded"
)

// statusServer answers with an overview, and with the indexes that are in the same document.
func statusServer(t *testing.T, overview string) *fakeServer {
	t.Helper()
	var of struct{ Indexes json.RawMessage }
	if err := json.Unmarshal([]byte(overview), &of); err != nil {
		t.Fatal(err)
	}
	return newFakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/indexes" {
			answer(200, `{"indexes":`+string(of.Indexes)+"}")(w, r)
			return
		}
		answer(200, overview)(w, r)
	})
}

// The golden files in testdata/status are what status prints of the overview beside them.
// COUNTMILL_WRITE_GOLDEN=1 writes them.
func TestStatusScreen(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/status/*.json")
	if err != nil || len(inputs) < 3 {
		t.Fatalf("got %q, %v", inputs, err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			f := statusServer(t, string(text))
			got := try(t, nil, "status", "--server", f.URL)
			shown := strings.ReplaceAll(got.out, f.URL, "http://count.example.com")
			golden := strings.TrimSuffix(input, "json") + "txt"
			if os.Getenv("COUNTMILL_WRITE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(shown), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || shown != string(want) {
				t.Errorf("%v; got\n%s\nwant\n%s", err, shown, want)
			}
			code := 0
			if strings.Contains(shown, "problem") {
				code = 1
			}
			if got.code != code || (got.errOut != "") != (code == 1) {
				t.Errorf("got exit %d and %q, want exit %d", got.code, got.errOut, code)
			}
		})
	}
}

func TestStatusOfUp(t *testing.T) {
	t.Parallel()
	db, err := embedded.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(db.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	env := []string{"COUNTMILL_SERVER=" + server.URL}
	try(t, env, "incr", "a", "7")
	if got := try(t, env, "index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--wait"); got.code != 0 {
		t.Fatalf("creating an index: got %+v", got)
	}
	got := result{}
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(100 * time.Millisecond) { // until the aggregator's second heartbeat
		if got = try(t, env, "status"); got.code == 0 && !strings.Contains(got.out, "unknown") {
			break
		}
	}
	for _, want := range []string{"status        ready: publisher, aggregator, reader, indexer at " + server.URL, "aggregators   1 alive\n", "commits       ", "no counter is at its limit", "disk          ", "indexes       sites: serving, checked "} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
	var both struct {
		Problems []any
		Overview struct{ Fleet []struct{ ID string } }
		Indexes  struct{ Indexes []struct{ State string } }
	}
	asJSON := try(t, env, "status", "--json")
	if err := json.Unmarshal([]byte(asJSON.out), &both); err != nil || both.Problems == nil || len(both.Overview.Fleet) != 1 || len(both.Indexes.Indexes) != 1 || strings.Count(asJSON.out, "\n") != 1 {
		t.Errorf("--json: %v, got %s", err, asJSON.out)
	}
}

func TestStatusExits(t *testing.T) {
	t.Parallel()
	gone := newFakeServer(t, answer(200, "{}"))
	gone.Close()
	try(t, nil, "status", "--server", gone.URL).wantError(t, 3, "countmill up")
	try(t, nil, "status", "--server", newFakeServer(t, answer(200, "<html>")).URL).wantError(t, 1, "is that a countmill")
	try(t, nil, "status", "--server", newFakeServer(t, answer(401, `{"detail":"no"}`)).URL).wantError(t, 1, "--token-file")
	try(t, nil, "status", "--server", newFakeServer(t, answer(404, `{"detail":"this process runs the role publisher"}`)).URL).wantError(t, 1, "role publisher")
	try(t, nil, "status", "x").wantError(t, 2, "takes no arguments")
}

// Three regular backups that are missing are a problem, also the first three.
func TestOldBackups(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		every float64
		last  time.Time
		want  string // the beginning of the problem; empty for none
	}{
		{60, now.Add(-3 * time.Minute), ""},
		{60, now.Add(-3*time.Minute - time.Second), "The last backup was taken 3m1s ago, and one is due every 1m0s."},
		{60, time.Time{}, "No backup was taken yet, and one is due every 1m0s."},
		{0, now.Add(-time.Hour), ""},
		{0, time.Time{}, ""},
	} {
		p := pipeline{Overview: client.Overview{AsOf: now, LastBackup: tc.last, BackupEvery: tc.every}}
		f, bad := p.backupOld()
		if bad != (tc.want != "") || bad && f.What != tc.want {
			t.Errorf("every %gs, last %s: got %q, %t, want %q", tc.every, tc.last, f.What, bad, tc.want)
		}
	}
}

// Of many indexes the screen has the unfinished ones, and the number of the others.
func TestManyIndexes(t *testing.T) {
	t.Parallel()
	p := pipeline{indexes: []client.Index{{Name: "new", State: "building"}}}
	for range mostIndexes {
		p.indexes = append(p.indexes, client.Index{Name: "old", State: "serving"})
	}
	if rows := p.indexRows(); len(rows) != mostIndexes+1 || rows[0] != "new: building" || rows[mostIndexes] != "and 1 more: countmill index list" {
		t.Errorf("got %q", rows)
	}
	p.indexes = p.indexes[1:]
	if rows := p.indexRows(); len(rows) != mostIndexes || rows[0] != "old: serving" {
		t.Errorf("got %q, want a row for each", rows)
	}
	p.noIndexes = errors.New("the store does not answer: nothing of this request was done, repeat it later")
	if rows := p.indexRows(); rows[0] != "unknown: the store does not answer" {
		t.Errorf("got %q", rows)
	}
}
