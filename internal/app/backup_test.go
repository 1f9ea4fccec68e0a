package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/api/apitest"
)

// A backup of `up` under load holds all that was answered before it, and starts as it is.
// Ids that it knows count once there too.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
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
	least, dir := answered.Load(), filepath.Join(t.TempDir(), "copy")
	status, text := r.call(t, "POST", "/v1/backup", `{"dir":`+strconv.Quote(dir)+`}`)
	most := sent.Load()
	close(done)
	load.Wait()
	if status != http.StatusOK || !strings.Contains(text, dir) {
		t.Fatalf("got %d %s, want 200", status, text)
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

func TestBackupSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	data := t.TempDir()
	r := start(t, data)
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
	check(r, `{"dir":"`+filepath.Join(t.TempDir(), "copy")+`"}`, 200, "copy")
	check(r, `{"dir":"`+data+`"}`, 400, "cannot take a backup")
	check(r, `{"dir":"copy"}`, 400, "from the root")
	check(r, `{"dir":"/no/such/place"}`, 400, "/no/such is not there")
	check(r, `{"dir":""}`, 400, "names no directory")
	check(r, `{"directory":"/tmp"}`, 400, "names no directory")
	check(r, ``, 400, "names no directory")
	for err, want := range map[error]int{pebble.ErrBackupBusy: 409, errors.New("disk is full"): 500, context.DeadlineExceeded: 503, countmill.ErrUnavailable: 503} {
		failing := startFaulty(t, Config{Store: "pebble:" + t.TempDir()}, func(b *backends) { b.backup = func(context.Context, string) error { return err } })
		check(failing, `{"dir":"/copy"}`, want, "")
		failing.stop(t)
	}
	other := startFaulty(t, Config{Store: "pebble:" + t.TempDir()}, func(b *backends) { b.backup = nil })
	defer other.stop(t)
	check(other, `{"dir":"/copy"}`, 501, "pebble:")
}
