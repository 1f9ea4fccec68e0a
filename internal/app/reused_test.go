package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill"
)

const (
	reusingRequests = 10
	reusedEach      = 8_000
	others          = 40
)

// reusing is a request of 8,000 ids, with one delta for all.
func reusing(request, delta int) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := range reusedEach {
		fmt.Fprintf(&b, `{"counter":"r%d","id":"e%d","delta":%d},`, request, i, delta)
	}
	return strings.TrimSuffix(b.String(), ",") + "]"
}

// Ids that come again with another delta stop nobody: all other requests are counted meanwhile.
func TestReusedIDsStopNobody(t *testing.T) {
	t.Parallel()
	var lines logLines
	r := startWith(t, Config{Logger: slog.New(&lines)})
	for n := range reusingRequests {
		r.incr(t, reusing(n, 1))
	}
	lines.n.Store(0)
	began := time.Now()
	var reusers, all sync.WaitGroup
	for n := range reusingRequests {
		reusers.Go(func() {
			// A repeat gets the same answer.
			r.wantConflicts(t, reusing(n, 2))
			r.wantConflicts(t, reusing(n, 2))
		})
	}
	<-time.After(500 * time.Millisecond)
	var counted atomic.Int64
	for i := range others {
		all.Go(func() {
			status, _, err := r.unhurried("POST", "/v1/increments", fmt.Sprintf(`{"counter":"other%d"}`, i))
			if err == nil && status == http.StatusAccepted {
				counted.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	_, ready := r.call(t, "GET", "/readyz", "")
	t.Logf("%d of %d others counted in %s, %.1f log lines a second; /readyz says %s", counted.Load(), others, took,
		float64(lines.n.Load())/took.Seconds(), strings.TrimSpace(ready))
	if counted.Load() != others {
		t.Errorf("%d of %d others were counted, want all", counted.Load(), others)
	}
	reusers.Wait()
	if got := r.metric(t, "countmill_dead_letters_total"); got != 0 {
		t.Errorf("%v dead letters of increments whose senders were told, want none", got)
	}
	for n := range reusingRequests {
		r.wantTotal(t, fmt.Sprint("r", n), reusedEach)
	}
}

// unhurried repeats a request after a 429, or after a 504 for its time-out: the machine may be slow.
func (r *running) unhurried(method, path, body string) (status int, text string, err error) {
	for deadline := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		status, text, err = r.try(method, path, body)
		slow := status == http.StatusTooManyRequests || status == http.StatusGatewayTimeout
		if !slow || time.Now().After(deadline) {
			return status, text, err
		}
	}
}

// wantConflicts sends a request of which nothing is counted.
func (r *running) wantConflicts(t *testing.T, body string) {
	status, text, err := r.unhurried("POST", "/v1/increments", body)
	var got struct {
		Type      string
		Conflicts []countmill.Conflict
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &got)
	}
	if err != nil || status != http.StatusUnprocessableEntity || got.Type != "urn:countmill:problem:ids-reused" || len(got.Conflicts) != reusedEach {
		t.Errorf("got %d %.300s (%v), want 422 ids-reused with %d conflicts", status, text, err, reusedEach)
		return
	}
	for i, c := range got.Conflicts {
		if c.Position != i || c.ID != fmt.Sprint("e", i) {
			t.Errorf("conflict %d is %+v, want position %d, id e%d", i, c, i, i)
			return
		}
	}
}

// logLines counts lines.
type logLines struct{ n atomic.Int64 }

func (l *logLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l *logLines) Handle(context.Context, slog.Record) error        { l.n.Add(1); return nil }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *logLines) WithGroup(string) slog.Handler                    { return l }
