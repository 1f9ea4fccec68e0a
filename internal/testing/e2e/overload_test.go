package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/longtest"
)

const (
	// overloadMemory is what docs/evidence/tests.md states.
	overloadMemory = 1024 << 20
	// largeMemory is the limit for bodies of 8 MiB.
	largeMemory = 1536 << 20
)

// An overload is what callers saw who waited for nothing but their answers.
type overload struct {
	mu       sync.Mutex
	statuses map[int]int // 0 for no answer
	lost     error       // of the last request without an answer
	accepted []int       // by body
	unknown  []int       // by body: it may have been counted
	silent   int         // refusals without Retry-After
}

// overwhelm has callers post bodies to a `countmill up`, and checks its memory and that it refuses some.
// COUNTMILL_TEST_OVERLOAD is how long they post (3s). On a slow machine they continue until it refuses
// something.
func overwhelm(t *testing.T, up *process, callers int, bodies []string, most int) *overload {
	t.Helper()
	if _, err := memoryOf(up.cmd.Process.Pid); err != nil {
		t.Skip(err)
	}
	o := &overload{statuses: make(map[int]int), accepted: make([]int, len(bodies)), unknown: make([]int, len(bodies))}
	// No caller gives up before its answer: the outcome of its request would be unknown.
	client := &http.Client{Timeout: 2 * busy, Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	watched := watchMemory(up.cmd.Process.Pid)
	began, length := time.Now(), lengthOf(t, "COUNTMILL_TEST_OVERLOAD", 3*time.Second)
	var all sync.WaitGroup
	for first := range callers {
		all.Go(func() {
			for n := first; time.Since(began) < length || o.refused() == 0 && time.Since(began) < busy; n++ {
				o.post(client, up, bodies, n%len(bodies))
			}
		})
	}
	all.Wait()
	during := watched()
	t.Logf("answers of %d callers: %v (%v); at most %d MiB and %d files", callers, o.statuses, o.lost, during.most>>20, during.files)
	for status, n := range o.statuses {
		switch status {
		case http.StatusAccepted, http.StatusTooManyRequests:
		case http.StatusGatewayTimeout: // a busy machine takes too long for the largest bodies
		case 0: // net/http waits half a second for a client that continues to send a refused body
		default:
			t.Errorf("%d answers of %d, want 202, 429 and 504 only", n, status)
		}
	}
	if o.refused() == 0 {
		t.Error("nothing was refused: it was not overloaded")
	}
	if o.silent > 0 {
		t.Errorf("%d answers of 429 have no Retry-After", o.silent)
	}
	if during.most > most {
		t.Errorf("it took %d MiB, want at most %d", during.most>>20, most>>20)
	}
	return o
}

func (o *overload) post(client *http.Client, up *process, bodies []string, n int) {
	resp, err := client.Post(up.url+"/v1/increments", "application/x-ndjson", strings.NewReader(bodies[n]))
	status, again := 0, ""
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		status, again = resp.StatusCode, resp.Header.Get("Retry-After")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses[status]++
	switch {
	case status == http.StatusAccepted:
		o.accepted[n]++
	case status != http.StatusTooManyRequests:
		o.unknown[n]++
		o.lost = err
	case again == "":
		o.silent++
	}
}

func (o *overload) refused() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.statuses[http.StatusTooManyRequests]
}

// Callers offer `countmill up` many times the load that it accepts. Its memory stays below a limit. It
// refuses callers with 429, and counts exactly what it accepts. Afterwards it accepts again.
func TestOverload(t *testing.T) {
	longtest.Only(t, "builds countmill and keeps the machine busy for many seconds")
	up := start(t, []string{"GOMEMLIMIT=", "GOGC="}, "up", "--data", t.TempDir()).ready(t)
	const increments = 5000 // of a body, each of a counter of its own
	counter := func(n, i int) string { return fmt.Sprintf("flood:%d:%d", n, i) }
	bodies := make([]string, 13)
	for n := range bodies {
		var body strings.Builder
		for i := range increments {
			fmt.Fprintf(&body, "{\"counter\":%q,\"delta\":%d}\n", counter(n, i), 1+i%7)
		}
		bodies[n] = body.String()
	}
	o := overwhelm(t, up, 512, bodies, overloadMemory)
	if o.statuses[http.StatusAccepted] == 0 {
		t.Error("nothing was accepted: there is nothing to compare")
	}
	if status, _ := send(http.DefaultClient, up.url, `{"counter":"afterwards"}`, ""); status != http.StatusAccepted {
		t.Errorf("afterwards an increment is answered with %d, want 202", status)
	}
	const asked = 1000 // at once
	for n, times := range o.accepted {
		for first := 0; first < increments; first += asked {
			counters := make([]string, asked)
			for i := range counters {
				counters[i] = counter(n, first+i)
			}
			got, err := up.ask("0s", counters...)
			if err != nil {
				t.Fatal(err)
			}
			for i, total := range got.Totals {
				delta := int64(1 + (first+i)%7)
				if got := total.Total / delta; total.Total%delta != 0 || got < int64(times) || got > int64(times+o.unknown[n]) {
					t.Fatalf("%s: total is %d: its request of %d was accepted %d times, and perhaps %d more", total.Counter, total.Total, delta, times, o.unknown[n])
				}
			}
		}
	}
}

// Bodies have the largest allowed size and the shortest increments. The memory for reading and decoding
// them is limited too.
func TestOverloadOfLargeBodies(t *testing.T) {
	longtest.Only(t, "builds countmill and keeps the machine busy for many seconds")
	up := start(t, []string{"GOMEMLIMIT=", "GOGC="}, "up", "--data", t.TempDir()).ready(t)
	var body strings.Builder
	for body.Len() < 8<<20-100 {
		fmt.Fprintf(&body, "{\"counter\":\"%x\"}\n", body.Len()%65536)
	}
	o := overwhelm(t, up, 64, []string{body.String()}, largeMemory)
	if o.statuses[http.StatusAccepted]+o.statuses[http.StatusGatewayTimeout] == 0 {
		t.Error("it took nothing: that is no overload")
	}
}
