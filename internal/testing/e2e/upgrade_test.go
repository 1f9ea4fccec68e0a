package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

// A rollout replaces the processes of a deployment by those of another version, one after the other.
type rollout struct {
	*deployment
	binaries                      map[string]string // today's, and one whose wire version is newer by one
	publisher, aggregator, reader *process
	sent                          int64
}

const (
	today = "today's version"
	newer = "a newer version"
)

func rollOut(t *testing.T) *rollout {
	t.Helper()
	d := deploy(t)
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	r := &rollout{deployment: d, binaries: map[string]string{today: binary, newer: buildNewer(t)}}
	r.aggregators(t, today)
	r.publishers(t, today)
	r.reader = d.reader(t)
	return r
}

// builtNewer is the countmill of the newer version, once it is built.
var builtNewer struct {
	sync.Mutex
	path string
}

// buildNewer builds a countmill whose wire version is newer by one, once for all tests.
func buildNewer(t *testing.T) string {
	t.Helper()
	builtNewer.Lock()
	defer builtNewer.Unlock()
	if builtNewer.path == "" {
		overlay, path := bugtest.Read(t, "testdata/newer")[0].Overlay(t), filepath.Join(binaryDir, "newer")
		build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", path, "../../../cmd/countmill")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		builtNewer.path = path
	}
	return builtNewer.path
}

// aggregators starts an aggregator of a version, and stops the one before.
func (r *rollout) aggregators(t *testing.T, version string) {
	t.Helper()
	before := r.aggregator
	r.aggregator = startBinary(t, r.binaries[version], r.env, "aggregator", "--bus", r.bus(), "--store", r.store()).ready(t)
	if before != nil {
		before.stop(t)
	}
}

// publishers starts a publisher of a version, and stops the one before.
func (r *rollout) publishers(t *testing.T, version string) {
	t.Helper()
	before := r.publisher
	r.publisher = startBinary(t, r.binaries[version], r.env, "publisher", "--bus", r.bus()).ready(t)
	if before != nil {
		before.stop(t)
	}
}

// count sends ten increments, each twice under its id.
func (r *rollout) count(t *testing.T) {
	t.Helper()
	for range 10 {
		r.sent++
		for range 2 {
			if status := post(r.publisher, fmt.Sprintf(`{"counter":"a","id":"%d"}`, r.sent), ""); status != http.StatusAccepted {
				t.Fatalf("increment %d: got status %d, want 202", r.sent, status)
			}
		}
	}
}

// exact waits until all is counted that was sent. Pub/Sub has given up nothing.
func (r *rollout) exact(t *testing.T) {
	t.Helper()
	r.reader.exact(t, 30*time.Second, map[string]int64{"a": r.sent})
	r.noDeadLetters(t)
}

// A deployment that is upgraded in the documented order, and rolled back, counts everything once.
func TestUpgradeAndRollBack(t *testing.T) {
	t.Parallel()
	r := rollOut(t)
	r.count(t)
	r.aggregators(t, newer)
	r.count(t)
	r.publishers(t, newer)
	r.count(t)
	r.exact(t)
	r.publishers(t, today)
	r.count(t)
	r.exact(t) // before aggregators go back: they cannot read newer messages
	r.aggregators(t, today)
	r.count(t)
	r.exact(t)
}

// A publisher that is upgraded first costs time and no increment.
func TestPublisherUpgradedFirst(t *testing.T) {
	t.Parallel()
	r := rollOut(t)
	r.count(t)
	r.exact(t)
	counted := r.sent
	r.publishers(t, newer)
	r.count(t)
	until(t, 30*time.Second, "the aggregator to ask for its upgrade", func() bool {
		status, body := r.aggregator.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "upgrade this aggregator")
	})
	if a, err := r.reader.ask("0s", "a"); err != nil || a.Totals[0].Total != counted {
		t.Errorf("the total is %+v (%v), want %d: nobody can read the newer messages", a.Totals, err, counted)
	}
	r.aggregators(t, newer)
	r.count(t)
	r.exact(t)
}
