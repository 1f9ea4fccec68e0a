package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/store"
)

// startBackups runs `up` with backups below root.
func startBackups(t *testing.T, root string) *running {
	t.Helper()
	r := startWith(t, Config{BackupRoot: root})
	return r
}

func TestBackupSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	root := t.TempDir()
	r := startBackups(t, root)
	check := func(r *running, body string, want int, says string) {
		t.Helper()
		req, err := http.NewRequest("POST", r.url+"/v1/backup", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var text strings.Builder
		if err := res.Write(&text); err != nil {
			t.Fatal(err)
		}
		_, answer, _ := strings.Cut(text.String(), "\r\n\r\n")
		if res.StatusCode != want || !strings.Contains(answer, says) {
			t.Errorf("%s: got %d %s, want %d and %q", body, res.StatusCode, answer, want, says)
		}
		doc.CheckAnswer(t, "POST", "/v1/backup", res.StatusCode, res.Header, []byte(answer))
	}
	url := backend.FileURL(root).String()
	check(r, `{}`, 200, `{"url":"`+url+`",`)
	check(r, `{"to":"`+filepath.Join(root, "copy")+`"}`, 200, `{"url":"`+url+`/copy",`)
	check(r, `{"to":"relative"}`, 200, `{"url":"`+url+`/relative",`)
	check(r, `{"to":"/etc"}`, 400, "it is not below file://")
	check(r, `{"to":"../up"}`, 400, "it is not below file://")
	made, err := os.ReadDir(root)
	if err != nil || len(made) != 5 { // copy, relative, backups, files, busy
		t.Errorf("what was refused left %v, %v", made, err)
	}
	_, text := r.call(t, "GET", "/v1/overview", "")
	if !strings.Contains(text, `"last_backup":"2`) {
		t.Errorf("overview: got %s, want the time of the last backup", text)
	}
	_, text = r.call(t, "GET", "/metrics", "")
	for _, line := range []string{"countmill_backups_total 3", "countmill_backup_failures_total 0", "countmill_backup_every_seconds 0", "countmill_backup_last_timestamp_seconds 1."} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("the metrics have no line %q", line)
		}
	}
	unset := start(t, t.TempDir())
	check(unset, `{"to":"/copy"}`, 501, "--backup-root PLACE or COUNTMILL_BACKUP_ROOT")
	if _, text := unset.call(t, "GET", "/v1/overview", ""); strings.Contains(text, `"last_backup"`) {
		t.Errorf("overview without backups: got %s", text)
	}
	other := startFaulty(t, Config{Store: "pebble:" + t.TempDir()}, func(b *backends) { b.store = struct{ store.Store }{b.store} })
	defer other.stop(t)
	check(other, `{}`, 501, "pebble:")
	late := startWith(t, Config{BackupRoot: "late://bucket", Buckets: []backend.Buckets{{
		Scheme: "late", Usage: "late://BUCKET", Open: func(context.Context, *neturl.URL, bool) (backend.Bucket, error) {
			return nil, fmt.Errorf("a call: %w", context.DeadlineExceeded)
		},
	}}})
	check(late, `{}`, 500, "it could not be written: the server's log says why")
}

// A root in or above the data directory ends the start.
func TestBackupRootIsApartFromTheData(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	data := filepath.Join(above, "data")
	for _, root := range []string{above, data, filepath.Join(data, "backups")} {
		_, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(data), BackupRoot: root})
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "--backup-root: ") {
			t.Errorf("%s: got %v, want ErrUsage", root, err)
		}
	}
	start(t, data) // nothing was left in it
}
