package e2e

import (
	"cmp"
	"encoding/json"
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
		t.Skip("takes half an hour: set COUNTMILL_TEST_GROUPS_GOOGLE, such as 300,100,8")
	}
	shape := parseGroupShape(t, "COUNTMILL_TEST_GROUPS_GOOGLE", text)
	// One worker alone reads all shards in twice the time of a stop and of the kills that come meanwhile.
	shape.early, shape.work = max(1, shape.counters*3/4), max(1, shape.counters/(8*shape.kills+280))
	g := newGoogleGroups(t, shape, seed(t))
	g.build()
	g.compare()
	if shape.counters <= verifiedAtMost {
		g.verify()
	}
	g.remove()
	if left, err := g.list("=site:"); err != nil || len(left) > 0 {
		t.Errorf("%d groups are left of the deleted index, %v", len(left), err)
	}
	g.d.noDeadLetters(t)
	g.noEarlyEnds()
}

// verifiedAtMost is the most counters for which the server is asked to verify: each page costs the emulator as much
// as all of its kind, and 20,000 counters take it five minutes.
const verifiedAtMost = 20_000

// A googleGroups is a deployment of a publisher, three aggregators, a reader and two workers.
type googleGroups struct {
	*grouping
	d           *deployment
	aggregators []*member
	workers     []*member
}

const (
	indexLease = time.Minute // of package indexer
	boardRate  = 20_000      // entities a second
)

func newGoogleGroups(t *testing.T, shape groupShape, seed uint64) *googleGroups {
	t.Helper()
	d := own(t).deployment
	bus, store := []string{"--bus", d.bus()}, []string{"--store", d.store()}
	run := func(role string, flags ...[]string) *member { return keep(t, d.env, role, slices.Concat(flags...)...) }
	g := &googleGroups{d: d, grouping: &grouping{
		t: t, shape: shape, rand: mathrand.New(mathrand.NewPCG(seed, 24)), apart: true,
		in:  run("publisher", bus),
		out: run("reader", store, []string{"--max-staleness", "0s", "--board-rate", strconv.Itoa(boardRate)}),
	}}
	for range 3 {
		g.aggregators = append(g.aggregators, run("aggregator", bus, store))
	}
	for range 2 {
		g.workers = append(g.workers, run("index work", store, []string{"--index-rate", strconv.Itoa(shape.work)}))
	}
	g.atRest = g.boards
	g.load(seed)
	return g
}

// members are all that may be killed.
func (g *googleGroups) members() []*member { return slices.Concat(g.aggregators, g.workers) }

// build creates the index, and kills and stops processes until it serves.
func (g *googleGroups) build() {
	t := g.t
	t.Helper()
	g.await()
	began, acked := time.Now(), g.acked.Load()
	g.change(http.MethodPost, "/v1/indexes", sitesIndex)
	f := &buildFaults{googleGroups: g, began: began, next: began}
	var aggregator, worker int64
	state := g.state()
	for ; state.State != "serving"; state = g.state() {
		if time.Since(began) > g.shape.serve {
			t.Fatalf("the index does not serve within %s: %+v", g.shape.serve, state)
		}
		aggregator, worker = max(aggregator, mostResident(g.aggregators)), max(worker, mostResident(g.workers))
		f.step(state.Done > 0)
		<-time.After(100 * time.Millisecond)
	}
	f.end()
	took := time.Since(began)
	t.Logf("%d counters served within %s, %s of them after the first range, %d kills, %d ranges; %d increments/s acknowledged meanwhile, %d requests repeated; resident at most: an aggregator %d MiB, a worker %d MiB",
		g.shape.counters, took.Round(time.Second), time.Since(f.read).Round(time.Second), f.killed, state.Ranges, int(float64(g.acked.Load()-acked)/took.Seconds()), g.resent.Load(),
		aggregator>>20, worker>>20)
	if state.Ranges <= 16 {
		t.Errorf("%d ranges: none was split, although workers lost their leases", state.Ranges)
	}
	if state.Wrong != 0 {
		t.Errorf("%d groups were corrected: increments were folded without the index", state.Wrong)
	}
}

// mostResident is the memory of the largest of some processes, in bytes.
func mostResident(of []*member) (most int64) {
	for _, m := range of {
		most = max(most, nowResident(m.current()))
	}
	return most
}

// buildFaults are the kills while an index is built, and the stop of one worker. Half of the kills come before
// the workers may read, and half come while they read.
type buildFaults struct {
	*googleGroups
	began   time.Time
	next    time.Time // of the next fault, or of the end of the stop
	read    time.Time // when the first range was read; zero before
	killed  int
	stopped bool
	resume  func() // ends the stop; nil if no worker is stopped
}

// step makes the next fault, if its time has come.
func (f *buildFaults) step(read bool) {
	if f.read.IsZero() && read {
		f.read = time.Now()
		f.t.Logf("%s after its creation the first range is read, after %d kills", time.Since(f.began).Round(time.Second), f.killed)
		f.next = time.Now()
	}
	if time.Now().Before(f.next) {
		return
	}
	switch {
	case f.resume != nil:
		f.resume()
		f.resume, f.next = nil, time.Now().Add(f.pause())
	case read && !f.stopped:
		f.stopped, f.resume, f.next = true, f.workers[0].pause(), time.Now().Add(2*indexLease)
	case f.killed < f.shape.kills/2 || read && f.killed < f.shape.kills:
		among := f.members()
		if read {
			among = slices.Concat(f.workers, f.aggregators[:1])
		}
		among[f.rand.IntN(len(among))].kill()
		f.killed++
		f.next = time.Now().Add(f.pause())
	}
}

// pause is the time to the next kill.
func (f *buildFaults) pause() time.Duration {
	most := 5 * time.Minute / time.Duration(max(1, f.shape.kills/2)) // before the workers read
	if !f.read.IsZero() {
		most = 8 * time.Second
	}
	return time.Duration(f.rand.Int64N(int64(most)))
}

// end continues a stopped worker. It fails the test if the index served before all faults were made.
func (f *buildFaults) end() {
	f.t.Helper()
	if f.resume != nil {
		f.resume()
	}
	if !f.stopped || f.killed < f.shape.kills {
		f.t.Errorf("killed %d times while it was built, want %d; a worker was stopped: %t", f.killed, f.shape.kills, f.stopped)
	}
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
	took := until(g.t, 30*time.Minute, "a board of "+of, func() bool {
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
	g.t.Logf("a board of %d %s, made in %s, is a sort of all %d totals; the reader has %d MiB resident", len(sorted), of, took.Round(time.Second/10), len(want), nowResident(g.out.current())>>20)
}

// noEarlyEnds fails the test if a process ended by itself.
func (g *googleGroups) noEarlyEnds() {
	g.t.Helper()
	for _, m := range append(g.members(), g.in, g.out) {
		m.mu.Lock()
		if len(m.ends)+len(m.early) > 0 {
			g.t.Errorf("the %s ended by itself: %q, and before it listened %q", m.role, m.ends, m.early)
		}
		m.mu.Unlock()
	}
}
