package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

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
