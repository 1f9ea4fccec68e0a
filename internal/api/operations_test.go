package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
)

func TestReady(t *testing.T) {
	t.Parallel()
	var degraded string
	var err error
	s := api.Services{Ready: func(context.Context) (string, error) { return degraded, err }}
	known, open := ask(t, s, api.Config{KnownCallers: true}), ask(t, s, api.Config{})
	known.want(t, "GET", "/healthz", "", 200, `{"status":"ok"}`)
	known.want(t, "GET", "/readyz", "", 200, `{"status":"ready"}`)
	ask(t, api.Services{}, api.Config{}).want(t, "GET", "/readyz?verbose", "", 200, `{"status":"ready"}`)
	degraded = "store: 10.0.0.7 is slow"
	known.want(t, "GET", "/readyz", "", 200, `"degraded","reason":"store: ask with a token for the reason"`)
	open.want(t, "GET", "/readyz", "", 200, `"degraded","reason":"store: 10.0.0.7 is slow"`)
	err = errors.New("bus: 10.0.0.8 is away")
	known.want(t, "GET", "/readyz", "", 503, `"detail":"bus: ask with a token for the reason"`)
	open.want(t, "GET", "/readyz", "", 503, `"detail":"bus: 10.0.0.8 is away"`)
	open.want(t, "GET", "/openapi.json", "", 200, `"openapi": "3.1.0"`)
}

func TestMetricsOfTheProcess(t *testing.T) {
	t.Parallel()
	a := serve(api.Services{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1") })}, api.Config{})
	rec := httptest.NewRecorder()
	a.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics?collect=go", nil))
	if rec.Code != 200 || rec.Body.String() != "up 1" {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
}

func TestBackup(t *testing.T) {
	t.Parallel()
	const path = "/v1/backup"
	ask(t, api.Services{}, api.Config{}).want(t, "POST", path, `{"to":"a"}`, 501, "backup copies a pebble: store")
	var err error
	var asked []string
	at := time.Date(2026, 11, 23, 9, 22, 1, 0, time.UTC)
	s := ask(t, api.Services{Backup: func(_ context.Context, to string) (client.Backup, error) {
		asked = append(asked, to)
		return client.Backup{URL: "file:///backups/" + to, ID: "x", BeganAt: at, TakenAt: at.Add(time.Second), Bytes: 12, SentBytes: 3}, err
	}}, api.Config{})
	s.want(t, "POST", path, `{"to":"a"}`, 200,
		`{"url":"file:///backups/a","id":"x","began_at":"2026-11-23T09:22:01.000000Z","taken_at":"2026-11-23T09:22:02.000000Z","bytes":12,"sent_bytes":3}`)
	s.want(t, "POST", path, `{}`, 200, `{"url":"file:///backups/",`)
	s.want(t, "POST", path, `{"to":""}`, 400, "to is empty")
	if len(asked) != 2 {
		t.Errorf("asked for %q, want two backups", asked)
	}
	for _, tc := range []struct {
		err    error
		status int
		says   string
	}{
		{api.ErrNoBackupRoot, 501, "--backup-root"},
		{api.BackupTargetError("is elsewhere"), 400, `"field":"to"`},
		{api.BackupBusyError(errors.New("one is made")), 409, "one is made"},
		{api.BackupFailedError("disk full"), 500, "it could not be written: disk full"},
		{context.DeadlineExceeded, 503, "the backup did not end within 10m0s"},
		{fmt.Errorf("%w: %w", countmill.ErrUnavailable, context.DeadlineExceeded), 503, ":unavailable"},
	} {
		err = tc.err
		s.want(t, "POST", path, `{"to":"a"}`, tc.status, tc.says)
	}
}

// A path of another role names that role, and those of this process.
func TestPathsOfOtherRoles(t *testing.T) {
	t.Parallel()
	const totals = "; GET /v1/totals is served by the role reader"
	ask(t, api.Services{}, api.Config{Roles: []string{"publisher"}}).want(t, "GET", "/v1/totals?counter=a", "", 404, "this process runs the role publisher"+totals)
	ask(t, api.Services{}, api.Config{Roles: []string{"publisher", "aggregator"}}).want(t, "GET", "/v1/totals", "", 404, "this process runs the roles publisher, aggregator"+totals)
	ask(t, api.Services{}, api.Config{}).want(t, "POST", "/v1/verify", `{}`, 404, "POST /v1/verify is served by the role reader or aggregator")
}

// If the store refuses this process, the answer names the remedy.
func TestAStoreThatRefusesTheProcess(t *testing.T) {
	t.Parallel()
	f := newStore(t, store.DeadLetter{Key: "a", Payload: []byte("x")})
	f.err = store.ErrDeployment
	s := ask(t, api.Services{DeadLetters: admin.NewDeadLetters(f)}, api.Config{})
	for _, r := range [][3]string{{"GET", "/v1/dead-letters", ""}, {"GET", "/v1/dead-letters/a", ""}, {"POST", "/v1/dead-letters/replay", `{"keys":["a"]}`}, {"POST", "/v1/dead-letters/discard", `{"keys":["a"]}`}} {
		s.want(t, r[0], r[1], r[2], 503, "look at the log: ")
	}
	// A caller with a right to some counters does not see the error. The log has it once a minute, with its code.
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fakeSequences{err: fmt.Errorf("%w: %w: permission denied (SQLSTATE 42501)", countmill.ErrUnavailable, store.ErrDeployment)}
		s := ask(t, api.Services{Sequences: f}, api.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			s.want(t, "POST", nextPath, `{"sequence":"a"}`, 503, `nothing of this request was done; ask an aggregator, or look at the log"`)
			s.want(t, "DELETE", sequencePath+"a", "", 503, `or look at the log"`)
			time.Sleep(30 * time.Second)
		}
		if n := strings.Count(log.String(), "42501"); n != 2 {
			t.Errorf("the log has the error %d times in a minute and a half, want 2: %s", n, &log)
		}
	})
}

// After StopIncrements a request for increments is refused, and the connection closed.
func TestStoppedIncrements(t *testing.T) {
	t.Parallel()
	a := serve(api.Services{Sender: failing{}}, api.Config{})
	if left := a.StopIncrements(t.Context()); left != 0 || a.Sending() != 0 {
		t.Errorf("%d requests are left, want none", left)
	}
	rec := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "/v1/increments", strings.NewReader(`{"counter":"a"}`))
	req.Header.Set("Content-Type", "application/json")
	a.ServeHTTP(rec, req)
	if rec.Code != 503 || rec.Header().Get("Connection") != "close" || !strings.Contains(rec.Body.String(), ":closed") {
		t.Errorf("got %d %v %s, want 503 closed", rec.Code, rec.Header(), rec.Body)
	}
}

// A failing sender answers every request alike.
type failing struct {
	api.Sender
	err error
}

func (f failing) Publish(context.Context, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, f.err
}
