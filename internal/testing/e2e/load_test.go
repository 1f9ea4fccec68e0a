package e2e

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A load posts increments to a publisher until it is ended. Each request has an Idempotency-Key and is
// repeated until it is accepted. So the right totals are known exactly, whatever faults happen.
type load struct {
	publisher *process
	counters  int
	pace      time.Duration // between two requests of a worker
	stop      chan struct{}
	workers   sync.WaitGroup
	once      sync.Once

	mu      sync.Mutex
	counted map[string]int64
	total   int64
}

// perRequest is the number of increments of a request.
const perRequest = 20

func startLoad(t *testing.T, publisher *process, workers, counters int) *load {
	t.Helper()
	return startPacedLoad(t, publisher, workers, counters, 10*time.Millisecond)
}

func startPacedLoad(t *testing.T, publisher *process, workers, counters int, pace time.Duration) *load {
	t.Helper()
	l := &load{
		publisher: publisher, counters: counters, pace: pace, stop: make(chan struct{}),
		counted: make(map[string]int64),
	}
	name := rand.Text() // keys must differ from those of other loads
	for worker := range workers {
		l.workers.Go(func() { l.run(name, worker) })
	}
	t.Cleanup(func() { l.once.Do(func() { close(l.stop) }); l.workers.Wait() })
	return l
}

func (l *load) run(name string, worker int) {
	pace := time.NewTicker(l.pace)
	defer pace.Stop()
	for request := 0; ; request++ {
		select {
		case <-l.stop:
			return
		case <-pace.C:
		}
		var body strings.Builder
		deltas := make(map[string]int64)
		for i := range perRequest {
			counter := fmt.Sprintf("c-%d", (worker*31+request*perRequest+i*i)%l.counters)
			deltas[counter] += int64(i%3 + 1)
			fmt.Fprintf(&body, "{\"counter\":%q,\"delta\":%d}\n", counter, i%3+1)
		}
		l.deliver(fmt.Sprintf("%s-%d-%d", name, worker, request), body.String(), deltas)
	}
}

// deliver repeats the request until it is accepted, even after the end: it may have been counted.
func (l *load) deliver(key, body string, deltas map[string]int64) {
	for {
		status := post(l.publisher, body, key)
		l.mu.Lock()
		if status == http.StatusAccepted {
			for counter, n := range deltas {
				l.counted[counter] += n
			}
			l.total += perRequest
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if status == 0 && l.publisher.cmd.ProcessState != nil {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// post sends NDJSON and returns the status; 0 means no answer.
func post(p *process, body, key string) int {
	status, _ := send(client, p.url, body, key)
	return status
}

func (l *load) accepted() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// wait waits until n more increments have been accepted.
func (l *load) wait(t *testing.T, n int64) {
	t.Helper()
	before := l.accepted()
	until(t, time.Minute, "increments to be accepted", func() bool { return l.accepted() >= before+n })
}

// end ends the load and returns the right total of every counter.
func (l *load) end() map[string]int64 {
	l.once.Do(func() { close(l.stop) })
	l.workers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counted)
}
