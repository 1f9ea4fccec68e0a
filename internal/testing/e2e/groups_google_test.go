package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An index is created on Datastore, over counters that three aggregators go on counting, and two workers build
// it. Aggregators and workers are killed at random, and one worker is stopped for longer than its lease. When
// the index serves, every counter and every group has exactly the acknowledged increments, and the board is
// a sort of them. Then the index is deleted.
//
// COUNTMILL_TEST_GROUPS_GOOGLE is COUNTERS,INCREMENTS A SECOND,KILLS. Without it the test is skipped: on
// Datastore an index waits for store.RulesSettle, twice over, because it cannot refuse older rules.
func TestGroupsOnGoogle(t *testing.T) {
	t.Parallel()
	text := os.Getenv("COUNTMILL_TEST_GROUPS_GOOGLE")
	if text == "" {
		t.Skip("takes a quarter of an hour: set COUNTMILL_TEST_GROUPS_GOOGLE, such as 300,100,8")
	}
	shape := groupShape{serve: 30 * time.Minute}
	if _, err := fmt.Sscanf(text, "%d,%d,%d", &shape.counters, &shape.rate, &shape.kills); err != nil || shape.counters < groupSize || shape.rate < 1 || shape.kills < 0 {
		t.Fatalf("COUNTMILL_TEST_GROUPS_GOOGLE must be COUNTERS,RATE,KILLS, got %q", text)
	}
	shape.early, shape.work = max(1, shape.counters*3/4), max(5, shape.counters/60)
	g := newGoogleGroups(t, shape, seed(t))
	g.build()
	g.compare()
	g.verify()
	began := time.Now()
	g.change(http.MethodDelete, "?name=sites", "")
	until(t, 20*time.Minute, "the index to be gone", func() bool { return g.state().State == "gone" })
	t.Logf("deleted within %s", time.Since(began).Round(time.Second))
	if left, err := g.list("=site:"); err != nil || len(left) > 0 {
		t.Errorf("%d groups are left of the deleted index, %v", len(left), err)
	}
	g.d.noDeadLetters(t)
	g.fail()
}

// A googleGroups is a deployment of a publisher, three aggregators, a reader and two workers.
type googleGroups struct {
	*grouping
	d           *deployment
	aggregators []*member
	workers     []*member
}

const (
	indexLease = 5 * time.Second
	boardRate  = 20_000 // entities a second
)

func newGoogleGroups(t *testing.T, shape groupShape, seed uint64) *googleGroups {
	t.Helper()
	d := own(t).deployment
	bus, store := []string{"--bus", d.bus()}, []string{"--store", d.store()}
	run := func(role string, flags ...[]string) *member { return keep(t, d.env, role, slices.Concat(flags...)...) }
	g := &googleGroups{d: d, grouping: &grouping{
		t: t, shape: shape, rand: mathrand.New(mathrand.NewPCG(seed, 24)), apart: true,
		in:  run("publisher", bus, []string{"--linger", "50ms"}),
		out: run("reader", store, []string{"--max-staleness", "0s", "--board-age", "1s", "--board-rate", strconv.Itoa(boardRate)}),
	}}
	for range 3 {
		g.aggregators = append(g.aggregators, run("aggregator", bus, store))
	}
	for range 2 {
		g.workers = append(g.workers, run("index work", store, []string{"--index-lease", indexLease.String(), "--index-rate", strconv.Itoa(shape.work)}))
	}
	g.atRest = g.boards
	g.load(seed)
	return g
}

// members are all that may be killed.
func (g *googleGroups) members() []*member { return slices.Concat(g.aggregators, g.workers) }

// build creates the index, and kills and stops processes until it serves. Half of the kills come before
// the workers may read, and half come while they read.
func (g *googleGroups) build() {
	t := g.t
	t.Helper()
	g.await()
	began, acked := time.Now(), g.acked.Load()
	g.change(http.MethodPost, "", `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`)
	var m struct{ aggregator, worker int64 }
	killed, stopped, read := 0, false, time.Time{}
	var resume func()
	next := began
	for state := g.state(); state.State != "serving"; state = g.state() {
		if time.Since(began) > g.shape.serve {
			t.Fatalf("the index does not serve within %s: %+v", g.shape.serve, state)
		}
		for _, a := range g.aggregators {
			m.aggregator = max(m.aggregator, nowResident(a.current()))
		}
		for _, w := range g.workers {
			m.worker = max(m.worker, nowResident(w.current()))
		}
		if read.IsZero() && state.Done > 0 {
			read = time.Now()
			t.Logf("%s after its creation the first piece is read, after %d kills", time.Since(began).Round(time.Second), killed)
			next = time.Now()
		}
		switch {
		case resume != nil && time.Now().After(next):
			resume()
			resume, next = nil, time.Now().Add(g.pauseBetween(read))
		case resume != nil || time.Now().Before(next):
		case !read.IsZero() && !stopped:
			stopped, resume, next = true, g.workers[0].pause(), time.Now().Add(2*indexLease)
		case killed < g.shape.kills/2 || !read.IsZero() && killed < g.shape.kills:
			among := g.members()
			if !read.IsZero() {
				among = slices.Concat(g.workers, g.aggregators[:1])
			}
			among[g.rand.IntN(len(among))].kill()
			killed++
			next = time.Now().Add(g.pauseBetween(read))
		}
		<-time.After(100 * time.Millisecond)
	}
	if resume != nil {
		resume()
	}
	state, took := g.state(), time.Since(began)
	t.Logf("%d counters served within %s, %s of them after the first piece, %d kills, %d pieces; %d increments/s acknowledged meanwhile, %d requests repeated; resident at most: an aggregator %d MiB, a worker %d MiB",
		g.shape.counters, took.Round(time.Second), time.Since(read).Round(time.Second), killed, state.Pieces, int(float64(g.acked.Load()-acked)/took.Seconds()), g.resent.Load(),
		m.aggregator>>20, m.worker>>20)
	if !stopped || killed < g.shape.kills {
		t.Errorf("killed %d times while it was built, want %d; a worker was stopped: %t", killed, g.shape.kills, stopped)
	}
	if state.Pieces <= 16 {
		t.Errorf("%d pieces: none was split, although workers lost their leases", state.Pieces)
	}
	if state.Wrong != 0 {
		t.Errorf("%d groups were corrected: increments were folded without the index", state.Wrong)
	}
}

// pauseBetween is the time to the next kill.
func (g *googleGroups) pauseBetween(read time.Time) time.Duration {
	most := 5 * time.Minute / time.Duration(max(1, g.shape.kills/2)) // before the workers read
	if !read.IsZero() {
		most = 8 * time.Second
	}
	return time.Duration(g.rand.Int64N(int64(most)))
}

// await waits until the early counters are in the store: the index is created over them.
func (g *googleGroups) await() {
	g.t.Helper()
	began := time.Now()
	until(g.t, 15*time.Minute, "the early counters to be counted", func() bool {
		status, text := g.out.up().get("/v1/counters?limit=1&prefix=" + g.shape.counter(g.shape.early-1))
		return status == http.StatusOK && strings.Contains(text, `"total"`)
	})
	g.t.Logf("the first increments were in the totals %s later", time.Since(began).Round(time.Second))
}

// boards compares the boards of counters and groups with a sort of the totals.
func (g *googleGroups) boards(counters, groups map[string]int64) {
	g.t.Helper()
	g.board("counters", counters)
	g.board("groups", groups)
}

func (g *googleGroups) board(of string, want map[string]int64) {
	g.t.Helper()
	rest := time.Now()
	var board struct {
		Top      []answerTotal
		Complete time.Time `json:"complete_as_of"`
	}
	last := ""
	took := until(g.t, 5*time.Minute, "a board of "+of, func() bool {
		status, text := g.out.up().get("/v1/top?index=sites&n=1000&of=" + of)
		if err := json.Unmarshal([]byte(text), &board); err != nil || status != http.StatusOK {
			last = text
			return false
		}
		return board.Complete.After(rest)
	})
	var sorted []answerTotal
	for name, n := range want {
		sorted = append(sorted, answerTotal{Counter: name, Total: n})
	}
	slices.SortFunc(sorted, func(a, b answerTotal) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.Counter, b.Counter))
	})
	sorted = sorted[:min(1000, len(sorted))]
	if len(board.Top) != len(sorted) {
		g.t.Fatalf("the board of %s has %d lines, want %d; %s", of, len(board.Top), len(sorted), last)
	}
	for i := range sorted {
		if got := board.Top[i]; got.Counter != sorted[i].Counter || got.Total != sorted[i].Total {
			g.t.Fatalf("line %d of the board of %s is %s %d, want %s %d", i+1, of, got.Counter, got.Total, sorted[i].Counter, sorted[i].Total)
		}
	}
	g.t.Logf("a board of %d %s, made in %s, is a sort of all %d totals", len(sorted), of, took.Round(time.Second/10), len(want))
}

// fail fails the test if a process ended by itself.
func (g *googleGroups) fail() {
	g.t.Helper()
	for _, m := range append(g.members(), g.in, g.out) {
		m.mu.Lock()
		if len(m.ends)+len(m.early) > 0 {
			g.t.Errorf("the %s ended by itself: %q, and before it listened %q", m.role, m.ends, m.early)
		}
		m.mu.Unlock()
	}
}
