package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// floodOpen is the most running requests.
const floodOpen = 4000

// An offer sends requests with a few different bodies, and knows how often each body was accepted.
type offer struct {
	up         *process
	increments int // of a request
	requests   [][]byte

	open     atomic.Int64 // running requests
	mostOpen int64

	mu       sync.Mutex
	idle     []*caller
	counted  []int64 // accepted so far, by body
	statuses map[int]int
	lost     error // the error of the last request without an answer
	silent   int   // refusals without Retry-After
	answered int
	accepted int64
	waits    []time.Duration
	after    time.Duration
}

// newOffer gives every increment of every body a counter of its own.
func newOffer(t *testing.T, up *process, bodies, increments int) *offer {
	o := &offer{up: up, increments: increments, counted: make([]int64, bodies), statuses: make(map[int]int)}
	for n := range bodies {
		var body strings.Builder
		for i := range increments {
			fmt.Fprintf(&body, "{\"counter\":%q,\"delta\":%d}\n", floodCounter(n, i), floodDelta(i))
		}
		o.requests = append(o.requests, posting(up.url, body.String()))
	}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.closeLocked()
	})
	return o
}

func (o *offer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses, o.answered, o.accepted, o.waits = make(map[int]int), 0, 0, nil
}

func (o *offer) post(n int) {
	began := time.Now()
	a, err := o.send(o.requests[n])
	took := time.Since(began)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses[a.status]++
	switch {
	case err != nil:
		o.lost = err
		return
	case a.status == http.StatusAccepted:
		o.counted[n]++
		o.accepted++
		o.waits = append(o.waits, took)
	case a.status == http.StatusTooManyRequests && !a.again:
		o.silent++
	}
	o.answered++
}

// send returns the status 0 if there was no answer.
func (o *offer) send(request []byte) (reply, error) {
	c, err := o.caller()
	if err != nil {
		return reply{}, err
	}
	a, err := c.post(request)
	if err != nil {
		_ = c.conn.Close()
		return reply{}, err
	}
	if a.last {
		_ = c.conn.Close()
		return a, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = append(o.idle, c)
	return a, nil
}

// caller returns the caller that was used last, or a new one. up closes connections that are idle for
// two minutes.
func (o *offer) caller() (*caller, error) {
	o.mu.Lock()
	if n := len(o.idle); n > 0 && time.Since(o.idle[n-1].answered) > time.Minute {
		o.closeLocked()
	}
	if n := len(o.idle); n > 0 {
		defer o.mu.Unlock()
		c := o.idle[n-1]
		o.idle = o.idle[:n-1]
		return c, nil
	}
	o.mu.Unlock()
	return call(o.up.url)
}

func (o *offer) closeLocked() {
	for _, c := range o.idle {
		_ = c.conn.Close()
	}
	o.idle = nil
}

// one posts a single increment.
func (o *offer) one(counter string) (status int) {
	a, err := o.send(posting(o.up.url, `{"counter":"`+counter+`"}`))
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.lost = err
	}
	return a.status
}

// taken returns how many requests a second up accepts without overload. The callers wait for each
// answer, and their number is the one with the best result.
func (o *offer) taken(t *testing.T, length time.Duration) (best float64) {
	o.takenOf(128, length) // all counters are new to it
	for _, callers := range []int{64, 128, 256, 512} {
		rate := o.takenOf(callers, length)
		t.Logf("of %d callers %.0f requests a second are accepted: %v", callers, rate, o.statuses)
		best = max(best, rate)
	}
	return best
}

func (o *offer) takenOf(callers int, length time.Duration) float64 {
	o.reset()
	began := time.Now()
	var all sync.WaitGroup
	for first := range callers {
		all.Go(func() {
			for n := first; time.Since(began) < length; n++ {
				o.post(n % len(o.requests))
			}
		})
	}
	all.Wait()
	return float64(o.accepted) / time.Since(began).Seconds()
}

// flood begins that many requests a second, whatever their outcome. It returns how many were answered
// in that time.
func (o *offer) flood(rate float64, length time.Duration) (answered int) {
	var requests sync.WaitGroup
	most := int64(min(floodOpen, openFiles()/2))
	began := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n := 0; time.Since(began) < length; <-tick.C {
		due := int(time.Since(began).Seconds() * rate)
		for ; n < due && o.open.Load() < most; n++ {
			o.mostOpen = max(o.mostOpen, o.open.Add(1))
			requests.Go(func() {
				defer o.open.Add(-1)
				o.post(n % len(o.requests))
			})
		}
		n = max(n, due) // requests that could not be begun in time are dropped
	}
	o.mu.Lock()
	answered = o.answered
	o.mu.Unlock()
	requests.Wait()
	return answered
}

// overwhelm floods for a time; on a slow machine it continues until something is refused. It returns
// the number of answers and the duration.
func (o *offer) overwhelm(rate float64, length time.Duration) (answered int, lasted time.Duration) {
	for lasted == 0 || o.refused() == 0 && lasted < busy {
		answered = o.flood(rate, length) // including answers to the flood before
		lasted += length
	}
	return answered, lasted
}

// latency is the median time of one increment, one after the other.
func (o *offer) latency(t *testing.T, n int) time.Duration {
	t.Helper()
	var took []time.Duration
	for range n {
		began := time.Now()
		if status := o.one("latency"); status != http.StatusAccepted {
			t.Fatalf("one increment was answered with %d (%v)", status, o.lost)
		}
		took = append(took, time.Since(began))
	}
	return quantile(took, 0.5)
}

// recover waits until an increment takes at most three times as long as before, and a little more. It
// also accepts the present latency of a process without overload, because other work on the machine is
// not a part of the recovery.
func (o *offer) recover(t *testing.T, quiet time.Duration, calm *offer) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < 2*overloadRecovery+busy {
		o.after, calm.after = o.latency(t, 20), calm.latency(t, 20)
		if o.after <= 3*max(quiet, calm.after)+5*time.Millisecond {
			break
		}
	}
	return time.Since(began)
}

// refused returns the number of requests that got a Retry-After.
func (o *offer) refused() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.statuses[http.StatusTooManyRequests]
}

// exact compares each total with the number of its accepted bodies.
func (o *offer) exact(t *testing.T) {
	t.Helper()
	const asked = 1000 // at once
	for n, times := range o.counted {
		for first := 0; first < o.increments; first += asked {
			counters := make([]string, min(asked, o.increments-first))
			for i := range counters {
				counters[i] = floodCounter(n, first+i)
			}
			got, err := o.up.ask("0s", counters...)
			if err != nil {
				t.Fatal(err)
			}
			for i, total := range got.Totals {
				if want := times * floodDelta(first+i); total.Total != want {
					t.Fatalf("%s: total is %d, want %d: its request was accepted %d times", total.Counter, total.Total, want, times)
				}
			}
		}
	}
}

// floodCounter and floodDelta are the counter and the delta of increment i of body n.
func floodCounter(n, i int) string { return fmt.Sprintf("flood:%d:%d", n, i) }
func floodDelta(i int) int64       { return 1 + int64(i%7) }

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
