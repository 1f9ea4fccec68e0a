package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// An index is created over counters that are being incremented, while `countmill up` is killed again and
// again. Callers repeat by key. When it serves, every counter and every group has exactly the acknowledged
// increments. Then the index is deleted and created again.
//
// COUNTMILL_TEST_GROUPS is COUNTERS,INCREMENTS A SECOND,KILLS (40000,5000,4), COUNTMILL_TEST_SEED decides when.
func TestGroupsThroughKills(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill, and deletes an index, which takes over a minute")
	shape := groupShape{counters: 40_000, rate: 5000, kills: 4, work: 8000, serve: time.Minute}
	if text := os.Getenv("COUNTMILL_TEST_GROUPS"); text != "" {
		shape = parseGroupShape(t, "COUNTMILL_TEST_GROUPS", text)
		shape.work = 20_000
	}
	g := newGrouping(t, shape, seed(t))
	g.build("first", shape.kills)
	g.compare()
	g.verify()
	g.remove()
	g.build("second", min(shape.kills, 1))
	g.compare()
}

// groupSize is how many counters a group has.
const groupSize = 200

// sitesIndex creates the index over the counters of a groupShape.
const sitesIndex = `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`

// A groupShape is the size of a run.
type groupShape struct {
	counters, rate, kills int
	work                  int           // shards that the worker reads in a second
	serve                 time.Duration // within which the index has to serve
}

// parseGroupShape reads the value of a variable: COUNTERS,RATE,KILLS.
func parseGroupShape(t *testing.T, variable, text string) groupShape {
	t.Helper()
	s := groupShape{serve: 30 * time.Minute}
	if _, err := fmt.Sscanf(text, "%d,%d,%d", &s.counters, &s.rate, &s.kills); err != nil || s.counters < groupSize || s.rate < 1 || s.kills < 0 {
		t.Fatalf("%s must be COUNTERS,RATE,KILLS, with at least %d counters and 1 increment a second; got %q", variable, groupSize, text)
	}
	return s
}

func (s groupShape) counter(i int) string { return fmt.Sprintf("page:s%04d:%07d", i/groupSize, i) }
func (s groupShape) group(i int) string   { return fmt.Sprintf("=site:s%04d", i/groupSize) }

// A grouping is a countmill under load, with the increments that it has acknowledged.
type grouping struct {
	t     *testing.T
	shape groupShape
	rand  *mathrand.Rand
	in    *member // takes increments
	out   *member // answers everything else; with countmill up the same

	pausing sync.RWMutex   // callers read-lock it for a request with all its repeats
	counted []atomic.Int64 // by counter
	acked   atomic.Int64
	resent  atomic.Int64
	ended   chan struct{}
	callers sync.WaitGroup
}

const groupCallers = 4

func newGrouping(t *testing.T, shape groupShape, seed uint64) *grouping {
	t.Helper()
	dir := t.TempDir()
	guard, err := child.GuardDirs(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.End)
	up := keep(t, nil, "up", "--data", dir, "--index-rate", strconv.Itoa(shape.work))
	g := &grouping{t: t, shape: shape, rand: mathrand.New(mathrand.NewPCG(seed, 23)), in: up, out: up}
	g.load(seed)
	return g
}

// load counts all counters once, and then goes on until the test ends.
func (g *grouping) load(seed uint64) {
	t, shape := g.t, g.shape
	t.Helper()
	g.ended, g.counted = make(chan struct{}), make([]atomic.Int64, shape.counters)
	until(t, time.Minute, "countmill to be ready", func() bool { return g.in.ready() && g.out.ready() })
	began := time.Now()
	g.fill()
	took := time.Since(began)
	for n := range groupCallers {
		random := mathrand.New(mathrand.NewPCG(seed, uint64(n)))
		g.callers.Go(func() { g.call(n, random) })
	}
	t.Cleanup(func() {
		close(g.ended)
		g.callers.Wait()
	})
	began, acked := time.Now(), g.acked.Load()
	until(t, time.Minute, "some load", func() bool { return time.Since(began) > 3*time.Second })
	t.Logf("%d counters acknowledged first in %s; then %d increments/s without an index", shape.counters, took.Round(time.Second/10),
		int(float64(g.acked.Load()-acked)/time.Since(began).Seconds()))
}

// linesOf is how many increments a request has.
const linesOf = 500

// fill increments all counters once.
func (g *grouping) fill() {
	var all sync.WaitGroup
	for n := range groupCallers {
		all.Go(func() {
			for from := n * linesOf; from < g.shape.counters; from += groupCallers * linesOf {
				deltas := make(map[int]int64)
				for i := from; i < min(from+linesOf, g.shape.counters); i++ {
					deltas[i] = int64(i%7 + 1)
				}
				g.send(fmt.Sprintf("fill-%d", from), deltas)
			}
		})
	}
	all.Wait()
}

// call sends requests at its share of the rate.
func (g *grouping) call(n int, random *mathrand.Rand) {
	pause := time.Duration(float64(time.Second) * linesOf * groupCallers / float64(g.shape.rate))
	next := time.Now()
	for request := 0; ; request++ {
		select {
		case <-g.ended:
			return
		case <-time.After(time.Until(next)):
		}
		if next = next.Add(pause); time.Since(next) > time.Second {
			next = time.Now() // after a kill the load does not catch up
		}
		deltas := make(map[int]int64)
		for range linesOf {
			deltas[random.IntN(g.shape.counters)] += int64(1 + random.IntN(9))
		}
		g.pausing.RLock()
		g.send(fmt.Sprintf("%d-%d", n, request), deltas)
		g.pausing.RUnlock()
	}
}

// send repeats a request by its key until it is acknowledged, and notes it then.
func (g *grouping) send(key string, deltas map[int]int64) {
	var body bytes.Buffer
	for i, delta := range deltas {
		fmt.Fprintf(&body, `{"counter":%q,"delta":%d}`+"\n", g.shape.counter(i), delta)
	}
	for try := 0; ; try++ {
		status, answer := g.post(key, body.Bytes())
		switch {
		case status == http.StatusAccepted:
			for i, delta := range deltas {
				g.counted[i].Add(delta)
			}
			g.acked.Add(int64(len(deltas)))
			return
		case status != 0 && status != http.StatusTooManyRequests && status < 500:
			g.t.Errorf("increments: got %d %s", status, answer)
			return
		}
		g.resent.Add(1)
		select {
		case <-g.ended:
			return // the test has compared everything, or failed
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (g *grouping) post(key string, body []byte) (status int, answer string) {
	p := g.in.up()
	if p == nil {
		return 0, ""
	}
	req, err := http.NewRequest(http.MethodPost, p.url+"/v1/increments", bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", key)
	return answerOf(req)
}

// patient waits for as long as the server may take for its longest answer.
var patient = &http.Client{Timeout: 11 * time.Minute, Transport: client.Transport}

func answerOf(req *http.Request) (status int, answer string) { return answerBy(client, req) }

func answerBy(c *http.Client, req *http.Request) (status int, answer string) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// change creates or deletes the index. It is repeated until it is answered.
func (g *grouping) change(method, path, body string) {
	g.t.Helper()
	until(g.t, time.Minute, "an answer to "+method+" "+path, func() bool {
		p := g.out.up()
		if p == nil {
			return false
		}
		req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
		if err != nil {
			g.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		status, answer := answerOf(req)
		if status != 0 && status != http.StatusOK && status < 500 {
			g.t.Fatalf("%s /v1/indexes: got %d %s", method, status, answer)
		}
		return status == http.StatusOK
	})
}

// remove deletes the index, and waits until it is gone.
func (g *grouping) remove() {
	g.t.Helper()
	began := time.Now()
	g.change(http.MethodDelete, "/v1/indexes?name=sites", "")
	until(g.t, time.Hour, "the index to be gone", func() bool { return g.state().State == "gone" })
	g.t.Logf("deleted within %s", time.Since(began).Round(time.Second))
}

// A groupState is the index as the server shows it.
type groupState struct {
	State  string
	Ranges int
	Done   int `json:"ranges_done"`
	Wrong  int `json:"corrected"`
}

// state is that of the index; its State is gone if there is none, and empty if nobody answers.
func (g *grouping) state() groupState {
	p := g.out.up()
	if p == nil {
		return groupState{}
	}
	status, text := p.get("/v1/indexes")
	var got struct{ Indexes []groupState }
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK {
		return groupState{}
	}
	if len(got.Indexes) == 0 {
		return groupState{State: "gone"}
	}
	return got.Indexes[0]
}

// build creates the index and kills countmill while it builds.
func (g *grouping) build(which string, kills int) {
	t := g.t
	t.Helper()
	before, acked, resident := time.Now(), g.acked.Load(), nowResident(g.out.current())
	g.change(http.MethodPost, "/v1/indexes", sitesIndex)
	most, onTheWay, killed := resident, 0, 0
	next := g.untilKill()
	deadline := before.Add(g.shape.serve)
	for state := g.state(); state.State != "serving"; state = g.state() {
		if time.Now().After(deadline) {
			t.Fatalf("the %s index does not serve within %s: %+v", which, g.shape.serve, state)
		}
		most = max(most, nowResident(g.out.current()))
		if killed < kills && time.Now().After(next) && state.State == "building" {
			if state.Done > 0 {
				onTheWay++
			}
			g.out.kill()
			killed++
			next = g.untilKill()
		}
		<-time.After(50 * time.Millisecond)
	}
	took := time.Since(before)
	t.Logf("%s index: %d counters served within %s, %d kills (%d after a range was done), %d increments/s acknowledged meanwhile, %d requests repeated so far, %d MiB resident at most (%d before)",
		which, g.shape.counters, took.Round(time.Second/10), killed, onTheWay, int(float64(g.acked.Load()-acked)/took.Seconds()), g.resent.Load(), most>>20, resident>>20)
	if killed < kills {
		t.Errorf("killed %d times while it built, want %d", killed, kills)
	}
	if wrong := g.state().Wrong; wrong != 0 {
		t.Errorf("%d groups were corrected: increments were folded without the index", wrong)
	}
}

// untilKill is 0.3 to 2 times the work of one of the 16 ranges: some kills come while a range is read for the
// second time, and some ranges are done in between.
func (g *grouping) untilKill() time.Time {
	keyRange := float64(g.shape.counters) / float64(g.shape.work) / 16
	return time.Now().Add(time.Duration(keyRange * (0.3 + 1.7*g.rand.Float64()) * float64(time.Second)))
}

// nowResident is the memory of a process, in bytes; 0 if it is not known.
func nowResident(p *process) int64 {
	m, err := memoryOf(p.cmd.Process.Pid)
	if err != nil {
		return 0 // it was killed
	}
	return int64(m.now)
}
