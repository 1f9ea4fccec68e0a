package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// upOn runs all roles on a store that outlives them.
func upOn(t *testing.T, s store.Store, cfg Config) *running {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	a, err := newApp(cfg, func(Config) (*backends, error) {
		b, err := inproc.New(inproc.Config{WaitForAck: true})
		if err != nil {
			return nil, err
		}
		cache, err := memory.New(memory.Config{})
		return &backends{
			bus: backend.OpenBus{Channel: b}, inProcess: true, store: sharedStore{s}, cache: cache, closers: []func() error{b.Close},
		}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, a)
}

// The window is the database's: a process that is given one sets it, others follow it.
func TestTheWindowIsTheDatabases(t *testing.T) {
	t.Parallel()
	s := protocoltest.New(protocoltest.Options{Window: 24 * time.Hour})
	for _, step := range []struct {
		given   time.Duration
		window  time.Duration
		version float64
		logged  string
	}{
		{0, 24 * time.Hour, 1, ""},
		{24 * time.Hour, 24 * time.Hour, 1, ""},
		{48 * time.Hour, 48 * time.Hour, 2, "from=24h0m0s to=48h0m0s settings_version=2"},
		{0, 48 * time.Hour, 2, ""},
		{time.Hour, time.Hour, 3, "from=48h0m0s to=1h0m0s settings_version=3"},
	} {
		var log bytes.Buffer
		r := upOn(t, s, Config{DedupWindow: step.given, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		r.waitReady(t)
		if got := r.metric(t, "countmill_dedup_window_seconds"); got != step.window.Seconds() {
			t.Errorf("given %s: goes by a window of %v s, want %s", step.given, got, step.window)
		}
		if got := r.metric(t, "countmill_settings_version"); got != step.version {
			t.Errorf("given %s: version %v, want %v", step.given, got, step.version)
		}
		for age, want := range map[time.Duration]int{step.window - time.Minute: 202, step.window + time.Minute: 400} {
			at := time.Now().Add(-age).Format(time.RFC3339)
			if status, text := r.call(t, "POST", "/v1/increments", fmt.Sprintf(`{"counter":"a","time":%q}`, at)); status != want {
				t.Errorf("given %s: an increment of %s ago: %d %s, want %d", step.given, age, status, text, want)
			}
		}
		r.stop(t)
		if got := log.String(); strings.Contains(got, "deduplication window") != (step.logged != "") || !strings.Contains(got, step.logged) {
			t.Errorf("given %s: logged %q, want %q", step.given, got, step.logged)
		}
	}
}

// A database that does not answer at once is asked again. A refusal ends the start.
func TestSettingTheWindowIsTriedAgain(t *testing.T) {
	t.Parallel()
	for answer, want := range map[protocoltest.Answer]struct {
		window time.Duration
		calls  int
		wrong  bool
	}{
		protocoltest.UnknownNotApplied: {time.Hour, 3, false},
		protocoltest.Deployment:        {24 * time.Hour, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := protocoltest.New(protocoltest.Options{Window: 24 * time.Hour})
			s.On("tx meta", protocoltest.Script(answer, answer))
			err := setWindow(Config{Roles: Aggregator, DedupWindow: time.Hour, Logger: slog.New(slog.DiscardHandler)}, s)
			checked, _ := s.Check(t.Context())
			if (err != nil) != want.wrong || checked.Settings.Window != want.window || s.Calls("tx meta") != want.calls {
				t.Errorf("answer %d: %v after %d calls, window %s; want %s after %d", answer, err, s.Calls("tx meta"), checked.Settings.Window, want.window, want.calls)
			}
		})
	}
}
