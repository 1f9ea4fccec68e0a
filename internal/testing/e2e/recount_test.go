package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
)

const (
	recountedCounters = 5000 // with their groups, more than a few pages of names
	damagedCounters   = 60
)

// Shards are damaged while `countmill up` is down. Then `countmill recount --repair` runs in four ranges, while
// it and up are killed again and again, and finds nothing at last: every total and group is again the sum of its
// increments.
func TestRecountThroughKills(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill, and kills it for many seconds")
	r := newRecounted(t, seed(t))
	r.fill()
	for range 4 {
		r.damage()
		r.repair()
		r.compare()
	}
	t.Logf("%d sums were damaged in each of 4 rounds; up was killed %d times, and recounts were %d times", damagedCounters, r.kills, r.stops)
	if r.kills == 0 || r.stops == 0 {
		t.Error("nothing was killed")
	}
}

// A recounted is a countmill up whose counters are under a rule for the journal.
type recounted struct {
	t        *testing.T
	rand     *mathrand.Rand
	dir      string
	address  string
	flags    []string
	up       *member
	totals   *grouping
	counters map[string]int64
	groups   map[string]int64
	kills    int // of up
	stops    int // recounts that were killed, or had no answer
}

func newRecounted(t *testing.T, seed uint64) *recounted {
	t.Helper()
	port, err := child.KeepPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Free() })
	dir := t.TempDir()
	guard, err := child.GuardDirs(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.End)
	r := &recounted{
		t: t, rand: mathrand.New(mathrand.NewPCG(seed, 1<<35)), dir: filepath.Join(dir, "data"), address: port.Addr(),
		counters: make(map[string]int64), groups: make(map[string]int64),
	}
	r.flags = []string{"--data", r.dir, "--listen", r.address}
	r.start()
	return r
}

func (r *recounted) start() {
	r.t.Helper()
	r.up = keep(r.t, nil, "up", r.flags...)
	until(r.t, time.Minute, "countmill up to be ready", r.up.ready)
	r.totals = &grouping{t: r.t, in: r.up, out: r.up, shape: groupShape{counters: recountedCounters}}
}

// fill counts, and waits until the index of the groups serves and an opening balance is there.
func (r *recounted) fill() {
	t := r.t
	t.Helper()
	r.totals.change(http.MethodPost, "/v1/rules/journal", `{"pattern":"page:*","keep":"30d"}`)
	until(t, time.Minute, "an opening balance", func() bool {
		code, _ := r.recount(0, "--opening")
		return code == 0
	})
	r.totals.change(http.MethodPost, "/v1/indexes", sitesIndex)
	until(t, time.Minute, "the index to serve", func() bool { return r.totals.state().State == "serving" })
	for n := range 80 {
		var body bytes.Buffer
		for i := n % 4; i < recountedCounters; i += 4 {
			delta := int64(1 + r.rand.IntN(9))
			fmt.Fprintf(&body, `{"counter":%q,"delta":%d}`+"\n", r.totals.shape.counter(i), delta)
			r.counters[r.totals.shape.counter(i)] += delta
			r.groups[r.totals.shape.group(i)] += delta
		}
		if status, answer := r.totals.post(fmt.Sprint("fill-", n), body.Bytes()); status != http.StatusAccepted {
			t.Fatalf("increments: got %d %s", status, answer)
		}
	}
}

// damage changes shards while no process has the directory.
func (r *recounted) damage() {
	t := r.t
	t.Helper()
	r.up.stop()
	s, err := pebble.Open(pebble.Config{Dir: r.dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range r.rand.Perm(recountedCounters)[:damagedCounters] {
		c := &store.Commit{Correction: true, Rules: store.AnyRules, Adds: []store.ShardDelta{store.NewShardDelta(r.totals.shape.counter(i), 0, int64(1+r.rand.IntN(99)))}}
		if _, err := s.Fold(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.start()
}

// recount runs the command and returns its exit code and output, or -1 if it was killed after some time; 0 for never.
func (r *recounted) recount(kill time.Duration, flags ...string) (code int, out string) {
	r.t.Helper()
	binary, err := buildOnce()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), binary, append([]string{"recount", "--timeout", "20s", "--server", "http://" + r.address}, flags...)...)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	if kill > 0 {
		defer time.AfterFunc(kill, func() { _ = cmd.Process.Kill() }).Stop()
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exit.Exited() && kill == 0) {
		r.t.Fatalf("recount: %v\n%s", err, both.String())
	}
	return cmd.ProcessState.ExitCode(), both.String()
}

// repair finds the damage, and then runs repairs until one comes to its end. up and the command are killed meanwhile.
func (r *recounted) repair() {
	t := r.t
	t.Helper()
	code, out := r.recount(0)
	if found := fmt.Sprintf("countmill: %d sums differ", damagedCounters); code != 3 || !strings.Contains(out, found) {
		t.Fatalf("the recount after the damage ended with %d and without %q:\n%s", code, found, out)
	}
	state := filepath.Join(t.TempDir(), "state")
	ended := make(chan struct{})
	var killing sync.WaitGroup
	pauses := mathrand.New(mathrand.NewPCG(r.rand.Uint64(), 0))
	killing.Go(func() {
		for n := range 6 {
			pause := time.Duration(pauses.IntN(40*(n+1))) * time.Millisecond
			select {
			case <-ended:
				return
			case <-time.After(pause):
				r.up.kill()
				r.kills++
			}
		}
	})
	defer killing.Wait()
	defer close(ended)
	for began := time.Now(); ; {
		code, out = r.recount(time.Duration(1+r.rand.IntN(400))*time.Millisecond, "--repair", "--parallel", "4", "--state", state)
		switch {
		case code == 0, code == 3 && !strings.Contains(out, "recount again"):
			// A kill can leave a temporary file, whose name begins with a dot.
			if left, err := filepath.Glob(state + "*"); err != nil || len(left) > 0 {
				t.Errorf("after a recount that is over: %q, %v", left, err)
			}
			return
		case code == 3: // somebody else corrected a sum of it meanwhile
		case code == -1, code == 1: // killed, or without an answer
			r.stops++
		default:
			t.Fatalf("the repair ended with %d:\n%s", code, out)
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("the repair does not end:\n%s", out)
		}
	}
}

// compare wants a recount of all sums to find nothing, and every total and group as its increments are.
func (r *recounted) compare() {
	t := r.t
	t.Helper()
	until(t, time.Minute, "countmill up to be ready", r.up.ready)
	code, out := r.recount(0)
	if code != 0 {
		t.Fatalf("the recount after the repair ended with %d:\n%s", code, out)
	}
	if want := fmt.Sprintf("%d counters and", len(r.counters)); !strings.Contains(out, want) {
		t.Errorf("the recount after the repair has no %q:\n%s", want, out)
	}
	for prefix, want := range map[string]map[string]int64{"page:": r.counters, "=site:": r.groups} {
		if got, err := r.totals.list(prefix); err != nil || !maps.Equal(got, want) {
			t.Errorf("the %d totals of %s are not those of the increments of %d, %v", len(got), prefix, len(want), err)
		}
	}
}
