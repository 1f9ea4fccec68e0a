package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
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
	quit    chan struct{} // closed when the test is over, whatever has no outcome then
	ended   sync.Once
	running sync.WaitGroup

	mu       sync.Mutex
	statuses map[int]int // of increments; 0 is no answer
	asked    map[int]int // of totals
	counts   callCounts
}

type callCounts struct {
	increments int64 // acknowledged
	requests   int   // acknowledged
	unknown    int   // requests that will never be known
	again      int   // repeats of what may have been counted
	absorbed   int   // repeats of what was acknowledged, all of which were again
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

// timeouts of callers: some lose patience before countmill does, some after.
var timeouts = []*http.Client{
	{Timeout: 3 * time.Second, Transport: client.Transport},
	{Timeout: 15 * time.Second, Transport: client.Transport},
}

// end ends the callers. Every request has its outcome then.
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

// giveUp is how long a caller repeats what may have been counted.
const giveUp = 3 * time.Minute

// deliver sends a request until it is acknowledged, or nobody may send it again.
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
			continue // nor what nobody was there to hear
		}
		if !q.repeats {
			return false
		}
		c.count(func(n *callCounts) { n.again++ })
	}
	return false
}

// send posts NDJSON. The status is 0 where there was no answer; sent is false where there
// was not even a connection.
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

// askOn asks for totals; half of the time fresh ones, else some that may be old.
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

// seek asks for the totals that lack what was acknowledged before a time, and reports how
// much they still lack.
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

func (c *callers) counted() callCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// only wants no other answers than these, and none (0).
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
