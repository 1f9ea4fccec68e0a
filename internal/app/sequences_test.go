package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/backup"
	"github.com/countmill/countmill/store"
)

const nextPath = "/v1/sequences/next"

// wantNext asks for values and checks the answer.
func (r *running) wantNext(t *testing.T, body string, status int, want string) {
	t.Helper()
	if got, text := r.call(t, "POST", nextPath, body); got != status || !strings.Contains(text, want) {
		t.Errorf("POST %s %s: got %d %s, want %d with %s", nextPath, body, got, text, status, want)
	}
}

func TestUpGivesValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir)
	now := time.Now().UTC()
	old, recent := now.Add(-9*24*time.Hour).Format(time.RFC3339), now.Add(-7*24*time.Hour).Format(time.RFC3339)
	for _, step := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"sequence":"user:42"}`, 200, `{"value":1}`},
		{`{"sequence":"user:42","id":"x"}`, 200, `{"value":2}`},
		{`{"sequence":"user:42","id":"many","count":5,"time":"` + recent + `"}`, 200, `{"first":3,"last":7}`},
		{`{"sequence":"user:42","id":"x"}`, 200, `{"value":2}`},
		{`{"sequence":"user:42","id":"many","count":5,"time":"` + recent + `"}`, 200, `{"first":3,"last":7}`},
		{`{"sequence":"user:42","id":"x","count":1}`, 200, `{"first":2,"last":2}`},
		{`{"sequence":"user:42","id":"x","count":2}`, 409, `urn:countmill:problem:other-count`},
		{`{"sequence":"user:42","id":"y","time":"` + old + `"}`, 410, `urn:countmill:problem:id-expired`},
		{`{"sequence":"user:42","id":"y","time":"` + now.Add(25*time.Hour).Format(time.RFC3339) + `"}`, 400, `"field":"time"`},
		{`{"sequence":"user:42","time":"` + recent + `"}`, 400, `"field":"time"`},
		{`{"sequence":"user:42","id":"y","time":"yesterday"}`, 400, `"field":"time"`},
		{`{"sequence":"user:42","count":1001}`, 400, `"limit":"1 to 1000"`},
		{`{"sequence":"user:42","count":0}`, 400, `"field":"count"`},
		{`{"sequence":"=group"}`, 400, `"field":"sequence"`},
		{`{"id":"y"}`, 400, `"field":"sequence"`},
		{`{"sequence":"user:7"}`, 200, `{"value":1}`},
		{`{"sequence":"user:42"}`, 200, `{"value":8}`},
	} {
		r.wantNext(t, step.body, step.status, step.want)
	}
	r.incr(t, `{"counter":"user:42","delta":3}`)
	r.wantTotal(t, "user:42", 3)
	if n := r.metric(t, "countmill_sequence_values_total"); n != 16 { // with the repeats
		t.Errorf("countmill_sequence_values_total is %v, want 16", n)
	}
	r.stop(t)
	r = start(t, dir)
	defer r.stop(t)
	r.wantNext(t, `{"sequence":"user:42","id":"x"}`, 200, `{"value":2}`)
	for _, step := range []struct{ method, want string }{
		{"GET", `{"sequence":"user:42","last":8,"exists":true}`},
		{"DELETE", `{"sequence":"user:42","last":8,"exists":true}`},
		{"DELETE", `{"sequence":"user:42","last":8,"exists":false}`},
		{"GET", `{"sequence":"user:42","last":8,"exists":false}`},
	} {
		if status, text := r.call(t, step.method, "/v1/sequences?sequence=user:42", ""); status != 200 || strings.TrimSpace(text) != step.want {
			t.Errorf("%s: got %d %s, want %s", step.method, status, text, step.want)
		}
	}
	r.wantNext(t, `{"sequence":"user:42"}`, 200, `{"value":9}`)
}

// A directory from a backup leaves out values that the lost process may have given.
func TestRestoreLeavesOutValues(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := startBackups(t, root)
	r.wantNext(t, `{"sequence":"a","id":"x"}`, 200, `{"value":1}`)
	if status, text := r.call(t, "POST", "/v1/backup", `{}`); status != http.StatusOK {
		t.Fatalf("backup: got %d %s", status, text)
	}
	r.wantNext(t, `{"sequence":"a"}`, 200, `{"value":2}`) // the backup lacks it
	r.wantNext(t, `{"sequence":"b"}`, 200, `{"value":1}`)
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := Restore(t.Context(), nil, root, backup.Choice{}, dir); err != nil {
		t.Fatal(err)
	}
	restored := start(t, dir)
	restored.wantNext(t, `{"sequence":"a","id":"x"}`, 200, `{"value":1}`)
	restored.wantNext(t, `{"sequence":"a"}`, 200, fmt.Sprintf(`{"value":%d}`, 1+store.RestoreSkip+1))
	restored.wantNext(t, `{"sequence":"b"}`, 200, fmt.Sprintf(`{"value":%d}`, store.RestoreSkip+1))
	restored.stop(t)
	restored = start(t, dir)
	restored.wantNext(t, `{"sequence":"a"}`, 200, fmt.Sprintf(`{"value":%d}`, 1+store.RestoreSkip+2))
	restored.stop(t)
}
