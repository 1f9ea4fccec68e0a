package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/publisher"
)

// A batchSender takes all that has come at once, as a publisher does, at a speed, and answers
// as much later as its bus takes.
type batchSender struct {
	Sender
	perSecond int
	bus       time.Duration
	wake      chan struct{}

	mu   sync.Mutex
	open []chan struct{}
	n    int
}

func (s *batchSender) Publish(ctx context.Context, incs ...countmill.Increment) (none publisher.Sent, err error) {
	done := make(chan struct{})
	s.mu.Lock()
	s.open = append(s.open, done)
	s.n += len(incs)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	select {
	case <-done:
		time.Sleep(s.bus)
		return none, nil
	case <-ctx.Done():
		return none, countmill.ErrOutcomeUnknown
	}
}

func (s *batchSender) run(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		open, n := s.open, s.n
		s.open, s.n = nil, 0
		s.mu.Unlock()
		time.Sleep(5*time.Millisecond + time.Duration(n)*time.Second/time.Duration(s.perSecond))
		for _, done := range open {
			close(done)
		}
	}
}

// A crowd is connections of one caller that send one request after the other, or wait for a
// second after a refusal.
type crowd struct {
	name                    string // of its token; empty: a caller for each connection
	connections, increments int

	mu       sync.Mutex
	statuses map[int]int
	took     []time.Duration
}

func (c *crowd) run(t *testing.T, h http.Handler, stop chan struct{}, all *sync.WaitGroup) {
	c.statuses = make(map[int]int)
	if c.name != "" {
		h = authtest.As(t, h, c.name)
	}
	body := strings.Repeat(`{"counter":"a"}`+"\n", c.increments)
	for n := range c.connections {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began, w := time.Now(), httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/v1/increments", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/x-ndjson")
				r.RemoteAddr = fmt.Sprintf("%p %d", c, n)
				h.ServeHTTP(w, r)
				c.mu.Lock()
				c.statuses[w.Code]++
				c.took = append(c.took, time.Since(began))
				c.mu.Unlock()
				if w.Code == http.StatusAccepted {
					time.Sleep(time.Millisecond)
				} else {
					time.Sleep(time.Second)
				}
			}
		})
	}
}

func (c *crowd) slowest() time.Duration {
	if len(c.took) == 0 {
		return 0
	}
	slices.Sort(c.took)
	return c.took[len(c.took)*99/100]
}

func (c *crowd) String() string {
	return fmt.Sprintf("%d connections, %d increments a request: answers %v, 99 of 100 within %s", c.connections, c.increments, c.statuses, c.slowest())
}

// early is how long before the last crowd the others begin: until the speed is settled, far
// more than usual is under way on senders as slow as those of the tests.
const early = 10 * time.Second

// beside runs crowds on one sender.
func beside(t *testing.T, s *batchSender, length time.Duration, crowds ...*crowd) {
	t.Helper()
	time.Sleep(time.Until(clock.Earliest)) // a bubble begins in the year 2000
	s.wake = make(chan struct{}, 1)
	h := newIncrements(s, IncrementsConfig{Bus: s.bus})
	var all sync.WaitGroup
	stop, end := make(chan struct{}), make(chan struct{})
	all.Go(func() { s.run(end) })
	var callers sync.WaitGroup
	for i, c := range crowds {
		if i == len(crowds)-1 {
			time.Sleep(early)
		}
		c.run(t, h, stop, &callers)
	}
	time.Sleep(length)
	close(stop)
	callers.Wait()
	close(end)
	all.Wait()
	for _, c := range crowds {
		t.Log(c)
	}
	if q := &h.queue; q.under != 0 || !q.lines.Empty() || q.lines.Held() != 0 || q.pass.Used() != 0 || h.pools[bodiesSent].Used() != 0 {
		t.Errorf("something is left: %d under way, %d held, %d passed, %d bytes", q.under, q.lines.Held(), q.pass.Used(), h.pools[bodiesSent].Used())
	}
}

// A caller of single increments is never refused beside two bulk senders, and waits for less
// than a second, with tokens and without.
func TestSmallCallerBesideBulkSenders(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			bulk := []*crowd{{connections: 60, increments: 1000}, {connections: 60, increments: 1000}}
			small := &crowd{connections: 4, increments: 1}
			if named {
				bulk[0].name, bulk[1].name, small.name = "bulk-0", "bulk-1", "small"
			}
			beside(t, &batchSender{perSecond: 20_000}, 20*time.Second, bulk[0], bulk[1], small)
			if len(small.statuses) != 1 || small.statuses[http.StatusAccepted] == 0 || small.slowest() > time.Second {
				t.Errorf("named: %t: %s; want 202 only, within 1 s", named, small)
			}
			if n := bulk[0].statuses[http.StatusAccepted] + bulk[1].statuses[http.StatusAccepted]; n < 500 {
				t.Errorf("named: %t: %d requests of bulk senders were taken, want some 600", named, n)
			}
		})
	}
}

// Callers get equal shares, whatever number of connections they have and however large their
// requests are.
func TestCallersHaveEqualShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		crowds := []*crowd{
			{name: "a", connections: 100, increments: 1000},
			{name: "b", connections: 20, increments: 1000},
			{name: "c", connections: 100, increments: 200},
			{name: "d", connections: 10, increments: 4000},
		}
		beside(t, &batchSender{perSecond: 20_000}, 40*time.Second, crowds...)
		for _, c := range crowds {
			share := float64(c.statuses[http.StatusAccepted]*c.increments) / ((40 + early.Seconds()) * 20_000)
			if c.name == "d" { // which came later
				share *= (40 + early.Seconds()) / 40
			}
			if share < 0.2 || share > 0.35 {
				t.Errorf("caller %s has %.2f of what was taken, want about a quarter", c.name, share)
			}
		}
	})
}

// A large request has its turn among many small ones.
func TestLargeRequestHasItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		small, large := &crowd{connections: 200, increments: 200}, &crowd{connections: 1, increments: 20_000}
		beside(t, &batchSender{perSecond: 20_000}, 30*time.Second, small, large)
		if large.statuses[http.StatusAccepted] == 0 {
			t.Errorf("%s; want some accepted", large)
		}
	})
}

// A bus that takes long to answer, and any number of messages at once, is not given ever less.
func TestSlowBusIsGivenEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{name: "a", connections: 100, increments: 1000}
		beside(t, &batchSender{perSecond: 1_000_000, bus: 900 * time.Millisecond}, 30*time.Second, c)
		if n := c.statuses[http.StatusAccepted]; n < 2500 {
			t.Errorf("%d requests were taken in 30 s, want some 3000: 100 connections, 0.9 s each", n)
		}
	})
}
