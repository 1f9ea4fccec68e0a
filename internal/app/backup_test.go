package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/backup"
	"github.com/countmill/countmill/store"
)

// A backup of `up` under load holds all that was answered before it, and starts as it is.
// Ids that it knows count once there too.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := startBackups(t, root)
	const event = `{"counter":"event","id":"e1"}`
	r.incr(t, event)
	var answered, sent atomic.Int64
	done := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				sent.Add(1)
				r.incr(t, `{"counter":"a"}`)
				answered.Add(1)
			}
		})
	}
	r.poll(t, "under load", func() bool { return answered.Load() > 50 })
	least := answered.Load()
	status, text := r.call(t, "POST", "/v1/backup", `{"to":"copy"}`)
	most := sent.Load()
	close(done)
	load.Wait()
	if status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", status, text)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := Restore(t.Context(), nil, root, backup.Choice{}, dir); err != nil {
		t.Fatal(err)
	}
	copied := start(t, dir)
	var got struct{ Total int64 }
	if _, text := copied.call(t, "GET", "/v1/counters/a", ""); json.Unmarshal([]byte(text), &got) != nil || got.Total < least || got.Total > most {
		t.Errorf("restored: got %s, want a total from %d to %d", text, least, most)
	}
	copied.incr(t, event)
	copied.wantTotal(t, "event", 1)
	copied.incr(t, `{"counter":"a"}`)
	copied.wantTotal(t, "a", got.Total+1)
	r.wantTotal(t, "a", answered.Load())
}

// startBackups runs `up` with backups below root.
func startBackups(t *testing.T, root string) *running {
	t.Helper()
	a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), BackupRoot: root})
	must(t, err)
	r := run(t, a)
	t.Cleanup(func() { r.stop(t) })
	return r
}

func TestBackupSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	root := t.TempDir()
	r := startBackups(t, root)
	var query string
	check := func(r *running, body string, want int, says string) {
		t.Helper()
		req, err := http.NewRequest("POST", r.url+"/v1/backup"+query, strings.NewReader(body))
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
	query = "?x=1"
	check(r, `{"to":"never"}`, 400, "this call takes no parameters")
	query = ""
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
	check(r, `{"to":""}`, 400, "to is empty")
	check(r, `{"directory":"/tmp"}`, 400, "directory is not a field")
	check(r, ``, 400, "body is not JSON")
	for err, want := range map[error]struct {
		status int
		says   string
	}{
		backup.ErrBusy:          {409, ""},
		backup.ErrOther:         {500, "could not be written: has backups of another database"},
		errors.New("/secret/a"): {500, "could not be written: the server's log says why"},
		&os.PathError{Op: "write", Path: "/secret/a", Err: syscall.ENOSPC}: {500, "could not be written: no space left on device"},
		context.DeadlineExceeded: {503, ""},
		countmill.ErrUnavailable: {503, ""},
	} {
		failing := startFaulty(t, Config{Store: "pebble:" + t.TempDir(), BackupRoot: t.TempDir()}, func(b *backends) {
			b.store = badDisk{b.store.(backend.Disk), err}
		})
		check(failing, `{}`, want.status, want.says)
		failing.stop(t)
	}
	other := startFaulty(t, Config{Store: "pebble:" + t.TempDir()}, func(b *backends) { b.store = struct{ store.Store }{b.store} })
	defer other.stop(t)
	check(other, `{}`, 501, "pebble:")
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

// A badDisk takes no backups.
type badDisk struct {
	backend.Disk
	err error
}

func (d badDisk) Checkpoint(context.Context, func(context.Context, string) error) error { return d.err }
