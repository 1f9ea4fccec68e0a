package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// Callers send what a ledger draws and read what it asks, until they are ended. They follow
// docs/promises.md: increments that were certainly not counted they send again, and increments
// that may have been counted only under ids or a key.
type callers struct {
	ledger     *ledger
	publishers []*member
	readers    []*member
	pace       time.Duration // between two requests of a caller

	stop    chan struct{}
	quit    chan struct{} // closed when the test is over, even if requests have no outcome
	ended   sync.Once
	running sync.WaitGroup

	mu       sync.Mutex
	statuses map[int]int // of increments; 0 means no answer
	asked    map[int]int // of totals
	counts   callCounts
}

type callCounts struct {
	increments int64 // acknowledged
	requests   int   // acknowledged
	unknown    int   // requests whose outcome stays unknown
	again      int   // repeats of requests that may have been counted
	absorbed   int   // repeats of acknowledged requests, all of which were acknowledged again
}

const (
	senders = 8
	askers  = 3
)

func startCallers(t *testing.T, l *ledger, seed uint64, publishers, readers []*member, pace time.Duration) *callers {
	t.Helper()
	c := &callers{
		ledger: l, publishers: publishers, readers: readers, pace: pace, stop: make(chan struct{}), quit: make(chan struct{}),
		statuses: make(map[int]int), asked: make(map[int]int),
	}
	for n := range uint64(senders) {
		c.running.Go(func() { c.send(rand.New(rand.NewPCG(seed, n)), fmt.Sprint(n), timeouts[n%2]) })
	}
	for n := range uint64(askers) {
		c.running.Go(func() { c.askOn(rand.New(rand.NewPCG(seed, senders+n))) })
	}
	t.Cleanup(func() { close(c.quit); c.end() })
	return c
}

// timeouts are the clients of callers: some give up before countmill does, some later.
var timeouts = []*http.Client{
	{Timeout: 3 * time.Second, Transport: client.Transport},
	{Timeout: 15 * time.Second, Transport: client.Transport},
}

// end ends the callers. Every request then has its outcome.
func (c *callers) end() {
	c.ended.Do(func() { close(c.stop) })
	c.running.Wait()
}

func (c *callers) stopping() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

func (c *callers) send(r *rand.Rand, name string, with *http.Client) {
	pace := time.NewTicker(c.pace)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-c.stop:
			return
		case <-pace.C:
		}
		q := c.ledger.draw(r, fmt.Sprintf("%s-%d", name, n))
		acked := c.deliver(r, q, with)
		c.ledger.settle(q, acked)
		c.count(func(n *callCounts) {
			if !acked {
				n.unknown++
				return
			}
			n.requests, n.increments = n.requests+1, n.increments+perRequest
		})
		if acked && q.repeats && r.IntN(10) == 0 && c.deliver(r, q, with) { // as if the answer had been lost
			c.count(func(n *callCounts) { n.absorbed++ })
		}
	}
}

// giveUp is how long a caller repeats a request that may have been counted.
const giveUp = 3 * time.Minute

// deliver sends a request until it is acknowledged, or must not be sent again.
func (c *callers) deliver(r *rand.Rand, q *request, with *http.Client) (acked bool) {
	for began := time.Now(); time.Since(began) < giveUp; <-time.After(20 * time.Millisecond) {
		select {
		case <-c.quit:
			return false
		default:
		}
		status, sent := 0, false
		if p := oneOf(r, c.publishers); p != nil {
			status, sent = send(with, p.url, q.body, q.key)
			c.answer(c.statuses, status)
		}
		switch status {
		case http.StatusAccepted:
			return true
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			continue // certainly not counted
		}
		if !sent {
			continue // not counted either, because there was no connection
		}
		if !q.repeats {
			return false
		}
		c.count(func(n *callCounts) { n.again++ })
	}
	return false
}

// send posts NDJSON. The status is 0 if there was no answer; sent is false if there was not even a
// connection.
func send(with *http.Client, url, body, key string) (status int, sent bool) {
	req, err := http.NewRequest(http.MethodPost, url+"/v1/increments", strings.NewReader(body))
	if err != nil {
		return 0, false
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := with.Do(req)
	if err != nil {
		dial, ok := errors.AsType[*net.OpError](err)
		return 0, !(ok && dial.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, true
}

// askOn asks for totals, half of the time for fresh ones, otherwise for totals that may be old.
func (c *callers) askOn(r *rand.Rand) {
	for !c.stopping() {
		staleness := time.Duration(r.IntN(2)*r.IntN(2000)) * time.Millisecond
		if p := oneOf(r, c.readers); p != nil {
			c.ask(p, c.ledger.ask(r, staleness))
		}
		select {
		case <-c.stop:
		case <-time.After(c.pace):
		}
	}
}

func (c *callers) ask(p *process, q *question) {
	a, err := p.ask(q.staleness.String(), q.counters...)
	status := http.StatusOK
	if err != nil {
		status = 0
		_, _ = fmt.Sscanf(err.Error(), "%d ", &status)
	}
	c.answer(c.asked, status)
	if err == nil {
		c.ledger.answered(q, a)
	}
}

// seek asks for the totals that lack increments acknowledged before a time. It reports how many they
// still lack.
func (c *callers) seek(r *rand.Rand, before time.Duration) (lacking int) {
	of, n := c.ledger.lacking(before)
	if n == 0 {
		return 0
	}
	if p := oneOf(r, c.readers); p != nil {
		c.ask(p, c.ledger.askFor(of[:min(len(of), 900)]))
	}
	_, n = c.ledger.lacking(before)
	return n
}

func (c *callers) answer(statuses map[int]int, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	statuses[status]++
}

func (c *callers) count(add func(*callCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.counts)
}

// failed returns how many questions had no totals for an answer.
func (c *callers) failed() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for status, times := range c.asked {
		if status != http.StatusOK {
			n += times
		}
	}
	return n
}

func (c *callers) counted() callCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// only checks that all answers have one of these statuses; 0 means no answer.
func (c *callers) only(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("answers to increments: %v, to questions: %v; 0 is none", c.statuses, c.asked)
	for status := range c.statuses {
		switch status {
		case 0, http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		default:
			t.Errorf("increments were answered with %d, want 202, 429, 503 or 504", status)
		}
	}
	for status := range c.asked {
		switch status {
		case 0, http.StatusOK, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		default:
			t.Errorf("totals were answered with %d, want 200, 503 or 504", status)
		}
	}
}

// wait waits until n more increments have been acknowledged.
func (c *callers) wait(t *testing.T, n int64) {
	t.Helper()
	before := c.counted().increments
	until(t, time.Minute, "increments to be acknowledged", func() bool { return c.counted().increments >= before+n })
}

// settle ends the callers, and waits until everything that was acknowledged is in a total.
func (c *callers) settle(t *testing.T) {
	t.Helper()
	c.end()
	r := rand.New(rand.NewPCG(1, 2))
	until(t, 2*time.Minute, "all that was acknowledged to be in a total", func() bool { return c.seek(r, never) == 0 })
}

// report compares every total with the ledger after settle, and fails if something is wrong. It prints a summary, which begins with
// struck.
func (c *callers) report(t *testing.T, length time.Duration, took []time.Duration, struck ...[2]string) {
	t.Helper()
	c.ledger.check(true)
	if err := c.ledger.problems(); err != nil {
		t.Fatal(err)
	}
	d, err := c.ledger.drift(func(counters []string) (answer, error) { return c.readers[0].up().ask("0s", counters...) })
	if err != nil {
		t.Fatal(err)
	}
	n := c.counted()
	t.Logf("\n%s", rows(slices.Concat([][2]string{{"seconds", fmt.Sprintf("%.0f", length.Seconds())}}, struck, [][2]string{
		{"increments acknowledged", fmt.Sprint(n.increments)},
		{"requests acknowledged", fmt.Sprint(n.requests)},
		{"requests repeated, the outcome unknown", fmt.Sprint(n.again)},
		{"requests repeated, though acknowledged", fmt.Sprint(n.absorbed)},
		{"requests that may not be repeated, of unknown outcome", fmt.Sprint(n.unknown)},
		{"counters compared", fmt.Sprint(d.counters)},
		{"totals read and checked on the way", fmt.Sprint(c.ledger.shown())},
		{"unknown increments in histories, of them counted", fmt.Sprintf("%d, %d", d.unknown, d.unknownCounted)},
		{"drift: lost, counted twice, never sent", fmt.Sprintf("%d, %d, %d", d.lost, d.doubled, d.foreign)},
		{"seconds to recover: median, maximum", seconds(took)},
	})))
	c.only(t)
	if !d.none() {
		t.Errorf("totals are not what the ledger says: %+v", d)
	}
}

// seconds returns the median and the maximum.
func seconds(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	took = slices.Sorted(slices.Values(took))
	return fmt.Sprintf("%.1f, %.1f of %d", took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), len(took))
}

func rows(table [][2]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range table {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	_ = w.Flush()
	return text.String()
}
