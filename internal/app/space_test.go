package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"
)

func TestDefaultMinFree(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		asked int
		size  uint64
		want  uint64
	}{
		{0, 1 << 40, 1 << 30},
		{0, 20 << 30, 1 << 30},
		{0, 10 << 30, 512 << 20},
		{0, 4 << 30, 4 << 30 / 20},
		{0, 4<<30 - 1, 0},
		{-1, 1 << 40, 0},
		{7 << 20, 400 << 20, 7 << 20},
	} {
		usage := func() (uint64, uint64, error) { return tc.size, tc.size, nil }
		if got := newSpace(usage, tc.asked, slog.New(slog.DiscardHandler)).min; got != tc.want {
			t.Errorf("asked for %d on %d bytes: got %d, want %d", tc.asked, tc.size, got, tc.want)
		}
	}
	broken := newSpace(func() (uint64, uint64, error) { return 0, 0, errors.New("no such call") }, 0, slog.New(slog.DiscardHandler))
	if err := broken.admit(); broken.min != 0 || err != nil {
		t.Errorf("of an unknown disk %d bytes are kept free, and increments get %v", broken.min, err)
	}
	broken.min = 1 << 30
	if err := broken.admit(); err != nil {
		t.Errorf("an unknown number of free bytes: %v", err)
	}
}

// The log warns once below twice --min-free, as the alert CountmillDiskLow does, however large the disk is.
func TestAFillingDiskIsWarnedOf(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	free := uint64(22 << 30)
	s := newSpace(func() (uint64, uint64, error) { return free, 270 << 30, nil }, 0, slog.New(slog.NewTextHandler(&log, nil)))
	for _, step := range []struct {
		free     uint64
		warnings int // so far
	}{{22 << 30, 0}, {2 << 30, 0}, {2<<30 - 1, 1}, {3 << 29, 1}, {2 << 30, 1}, {3 << 30, 1}, {3 << 29, 2}} {
		free = step.free
		s.next.Store(0)
		s.state()
		if n := strings.Count(log.String(), "level=WARN msg=\"the disk is filling: below --min-free increments are refused\""); n != step.warnings || strings.Count(log.String(), "\n") != n {
			t.Errorf("with %d bytes free: got %d warnings, want %d:\n%s", step.free, n, step.warnings, &log)
		}
	}
}

// A disk is that of a running App, whose free bytes the test decides.
type disk struct {
	*running
	space *space
	free  atomic.Uint64
}

// A sized store is on a file system of 100 GiB.
type sized struct {
	backend.Disk
	d *disk
}

func (s sized) FileSystem() (free, size uint64, err error) { return s.d.free.Load(), 100 << 30, nil }

func startOnDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{}
	d.free.Store(50 << 30)
	a, err := newApp(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir())}, func(cfg Config) (*backends, error) {
		b, err := openBackends(cfg)
		if err == nil {
			b.store = sized{b.store.(backend.Disk), d}
		}
		return b, err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.running, d.space = run(t, a), serviceOf[*onDisk](t, a).space
	t.Cleanup(func() { d.stop(t) })
	return d
}

// set sets the free bytes, and has the App look.
func (d *disk) set(free uint64) {
	d.free.Store(free)
	d.space.next.Store(0)
}

// While the disk is nearly full increments are refused, and nothing else is.
func TestNearlyFullDiskRefusesIncrements(t *testing.T) {
	t.Parallel()
	d := startOnDisk(t)
	d.incr(t, `{"counter":"a"}`)
	for _, step := range []struct {
		free uint64
		want int
	}{
		{1 << 30, 202},
		{1<<30 - 1, 507},
		{600 << 20, 507},
		{1 << 30, 507}, // not yet an eighth more
		{1<<30 + 1<<27 - 1, 507},
		{1<<30 + 1<<27, 202},
		{1 << 30, 202},
		{0, 507},
	} {
		d.set(step.free)
		status, text := d.call(t, "POST", "/v1/increments", `{"counter":"a"}`)
		if status != step.want || status == 507 && !strings.Contains(text, `"type":"urn:countmill:problem:insufficient-storage"`) {
			t.Errorf("with %d bytes free: got %d %s, want %d", step.free, status, text, step.want)
		}
	}
	d.wantTotal(t, "a", 4)
	if status, text := d.call(t, "GET", "/readyz", ""); status != 200 || !strings.Contains(text, "degraded") || !strings.Contains(text, "store: increments are refused, as 0MiB of its disk are free and --min-free is 1GiB") {
		t.Errorf("readyz: got %d %s", status, text)
	}
	if status, text := d.call(t, "POST", "/v1/reset", `{"counter":"a"}`); status != 200 || !strings.Contains(text, `"removed":4`) {
		t.Errorf("reset: got %d %s", status, text)
	}
	d.wantTotal(t, "a", 0)
	if got := d.metric(t, "countmill_storage_refused_requests_total"); got != 5 {
		t.Errorf("%v refused requests are counted, want 5", got)
	}
	if free, least := d.metric(t, "countmill_store_free_bytes"), d.metric(t, "countmill_store_min_free_bytes"); free != 0 || least != 1<<30 {
		t.Errorf("metrics say that %v bytes are free, of %v at least", free, least)
	}
	req, err := http.NewRequest("POST", d.url+"/v1/increments", strings.NewReader(`{"counter":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := res.Header.Get("Retry-After"); res.StatusCode != 507 || got != "30" {
		t.Errorf("got %d and Retry-After %q, want 507 and 30", res.StatusCode, got)
	}
}

// Accepted increments are folded until half of the space is gone, held from then on, and
// folded when there is space again.
func TestFoldingWaitsForSpace(t *testing.T) {
	t.Parallel()
	d := startOnDisk(t)
	d.set(600 << 20)
	if _, err := serviceOf[*publishing](t, d.App).Publish(t.Context(), countmill.Increment{Counter: "a", Delta: 1}); err != nil {
		t.Fatalf("with more than half of --min-free: %v", err)
	}
	d.set(500 << 20)
	folder := roomyStore{serviceOf[*onDisk](t, d.App).Disk, d.space}
	if _, err := folder.Fold(t.Context(), &store.Commit{}); !errors.Is(err, store.ErrDeployment) {
		t.Errorf("a fold with less than half: got %v, want one that is tried again", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := serviceOf[*publishing](t, d.App).Publish(ctx, countmill.Increment{Counter: "a", Delta: 10})
		done <- err
	}()
	d.poll(t, "folding to stop", func() bool { return serviceOf[*aggregating](t, d.App).Aggregator.Ready() != nil })
	select {
	case err := <-done:
		t.Fatalf("an increment was settled on a full disk: %v", err)
	default:
	}
	d.wantTotal(t, "a", 1)
	d.set(2 << 30)
	if err := <-done; err != nil {
		t.Errorf("with space again: %v", err)
	}
	d.wantTotal(t, "a", 11)
	d.incr(t, `{"counter":"a"}`)
}

// The file system is asked for its free bytes five times a second, not for each request.
func TestFreeBytesAreLookedAtNowAndThen(t *testing.T) {
	t.Parallel()
	looks := 0
	s := newSpace(func() (uint64, uint64, error) { looks++; return 1 << 40, 1 << 41, nil }, 0, slog.New(slog.DiscardHandler))
	looks = 0
	now := time.Unix(0, s.next.Load())
	for i := range 1000 {
		s.look(now.Add(time.Duration(i) * time.Millisecond))
	}
	if looks != 5 {
		t.Errorf("looked %d times in a second, want 5", looks)
	}
	s.look(now.Add(-time.Hour)) // the clock was set back
	if looks != 6 {
		t.Error("not looked after the clock was set back")
	}
}
