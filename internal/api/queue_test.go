package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/publisher"
)

// A steadyQueue has requests under way, of which as many are taken a second as the test says.
type steadyQueue struct {
	queue
	t     *testing.T
	now   time.Time
	under []ticket
}

// take has that many increments taken a second, in a hundred requests; a fifth of a second's
// are under way, or a request.
func (q *steadyQueue) take(perSecond int, length time.Duration) {
	q.t.Helper()
	for ; length > 0; length -= 10 * time.Millisecond {
		n := max(perSecond/100, 1)
		for len(q.under) < 20 && q.fitsLocked(n, q.roomLocked()) {
			q.enter(n)
		}
		q.now = q.now.Add(10 * time.Millisecond)
		q.leave(q.under[0], true, q.now)
		q.under = q.under[1:]
	}
	for _, t := range q.under {
		q.leave(t, false, q.now)
	}
	q.under = nil
}

func (q *steadyQueue) enter(cost int) {
	q.t.Helper()
	ticket, err := q.queue.enter(q.t.Context(), "a", cost, q.now)
	if err != nil {
		q.t.Fatalf("%d increments beside %d: %v", cost, q.queue.under, err)
	}
	q.under = append(q.under, ticket)
}

// rooms is how many increments may be under way, and how many may wait.
func (q *steadyQueue) rooms() (under, wait int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tickLocked(q.now)
	room := q.roomLocked()
	for q.fitsLocked(100, room) {
		q.queue.under += 100
	}
	under = q.queue.under
	for wait < 10_000_000 && q.tooLongLocked("a") == nil {
		q.lines.Join("a", q.now, 100, q.turnLocked())
		wait += 100
	}
	return under, wait
}

// The bounds on increments under way and in lines follow the speed, which shows only while
// there are plenty of increments.
func TestRoomFollowsTheSpeed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		happens     func(q *steadyQueue)
		under, wait int
	}{
		{"nothing is known", func(*steadyQueue) {}, first, unknown},
		{"too little is known", func(q *steadyQueue) { q.take(50_000, time.Second) }, first, unknown},
		{"only little was taken", func(q *steadyQueue) { q.take(1_000, time.Minute) }, first, unknown},
		{"slow", func(q *steadyQueue) { q.take(20_000, 10*time.Second) }, 5_000, 45_000},
		{"medium", func(q *steadyQueue) { q.take(200_000, 10*time.Second) }, 50_000, 450_000},
		{"fast", func(q *steadyQueue) { q.take(10_000_000, 10*time.Second) }, 600_000, 10_000_000},
		{"very slow", func(q *steadyQueue) {
			for range 10 {
				q.enter(20_000) // nothing else is under way: one passes, however large
				q.now = q.now.Add(4 * time.Second)
				q.leave(q.under[0], true, q.now)
				q.under = nil
			}
		}, always, 11_250},
		{"idle since", func(q *steadyQueue) { q.take(20_000, 10*time.Second); q.now = q.now.Add(time.Hour) }, 5_000, 45_000},
		{"little since", func(q *steadyQueue) { q.take(20_000, 10*time.Second); q.take(1_000, time.Minute) }, 5_000, 45_000},
		{"faster since", func(q *steadyQueue) { q.take(20_000, 10*time.Second); q.take(200_000, 20*time.Second) }, 50_000, 450_000},
		{"slower since", func(q *steadyQueue) { q.take(200_000, 10*time.Second); q.take(20_000, 20*time.Second) }, 5_000, 45_000},
	} {
		q := &steadyQueue{t: t, now: time.Unix(1e9, 0)}
		q.most, q.limit = 2500*time.Millisecond, 600_000
		q.tickLocked(q.now)
		tc.happens(q)
		under, wait := q.rooms()
		if off := tc.under / 10; under < tc.under-off || under > tc.under+off {
			t.Errorf("%s: %d may be under way, want %d", tc.name, under, tc.under)
		}
		if off := tc.wait / 10; wait < tc.wait-off || wait > tc.wait+off {
			t.Errorf("%s: %d may wait, want %d", tc.name, wait, tc.wait)
		}
		if err := q.tooLongLocked("a"); err != nil && !errors.Is(err, countmill.ErrOverloaded) {
			t.Errorf("%s: one more: got %v", tc.name, err)
		}
	}
}

// A request that looked at the clock, and then waited for another, counts no time twice.
func TestSpeedOfALateRequest(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := speed{last: began}
	s.pass(began.Add(time.Second), true)
	s.pass(began, false)
	s.pass(began.Add(2*time.Second), true)
	if s.busy != 2*time.Second {
		t.Errorf("busy for %s, want 2s", s.busy)
	}
}

// Whoever stops waiting leaves nothing behind, and those behind it still have their turn.
func TestWaitersLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{most: 2 * time.Second, limit: always}
		first, err := q.enter(t.Context(), "a", 10*always, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone, late := make(chan error), make(chan error)
		go func() { _, err := q.enter(ctx, "b", always, time.Now()); gone <- err }()
		synctest.Wait()
		go func() { _, err := q.enter(t.Context(), "b", always, time.Now()); late <- err }()
		time.Sleep(time.Second)
		cancel(errors.New("the client has gone"))
		if err := <-gone; !errors.Is(err, countmill.ErrUnavailable) || !strings.Contains(err.Error(), "client has gone") {
			t.Errorf("a request whose client has gone: got %v", err)
		}
		if err := <-late; !errors.Is(err, countmill.ErrOverloaded) {
			t.Errorf("a request that has waited for 4 s: got %v", err)
		}
		q.leave(first, true, time.Now())
		if q.under != 0 || !q.lines.Empty() || q.lines.Held() != 0 {
			t.Errorf("%d under way, %d held, want none", q.under, q.lines.Held())
		}
	})
}

// Names that are long cost more.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, tc := range [][3]int{{1, 20, 1}, {1, 500, 7}, {1000, 30_000, 1000}, {1000, 520_000, 8125}} {
		if got := cost(tc[0], tc[1]); got != tc[2] {
			t.Errorf("%d increments in %d bytes cost %d, want %d", tc[0], tc[1], got, tc[2])
		}
	}
}

// A slowSender takes a request a second.
type slowSender struct {
	Sender
	turn chan struct{}
}

func (s slowSender) Publish(ctx context.Context, _ ...countmill.Increment) (none publisher.Sent, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	time.Sleep(time.Second)
	<-s.turn
	return none, nil
}

// A toldReader knows whether it was read.
type toldReader struct {
	io.Reader
	read bool
}

func (r *toldReader) Read(p []byte) (int, error) {
	r.read = true
	return r.Reader.Read(p)
}

// Of many requests at once, the handler takes the ones it can answer in time. A refused caller
// learns when to come again, and nobody waits in vain.
func TestOverloadRefusesBeforeTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest)) // a bubble begins in the year 2000
		h := newIncrements(slowSender{turn: make(chan struct{}, 1)}, IncrementsConfig{Timeout: 20 * time.Second})
		body := strings.Repeat(`{"counter":"a"}`+"\n", 3000)
		answers := make(chan int, 100)
		var unread atomic.Int64
		for range 100 {
			go func() {
				from := &toldReader{Reader: strings.NewReader(body)}
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/v1/increments", from)
				r.Header.Set("Content-Type", "application/x-ndjson")
				r.ContentLength = int64(len(body))
				h.ServeHTTP(w, r)
				if w.Code == http.StatusTooManyRequests {
					if !from.read {
						unread.Add(1)
					}
					if w.Header().Get("Retry-After") == "" {
						t.Error("a refused request is not told when to come again")
					}
				}
				answers <- w.Code
			}()
			time.Sleep(100 * time.Millisecond)
		}
		statuses := make(map[int]int)
		for range 100 {
			statuses[<-answers]++
		}
		if statuses[http.StatusAccepted]+statuses[http.StatusTooManyRequests] != 100 || statuses[http.StatusAccepted] < 10 {
			t.Errorf("got answers %v, want 202 and 429 only", statuses)
		}
		if unread.Load() == 0 {
			t.Error("each refused body was read first")
		}
	})
}

// A machine whose clock cannot be right would call right times wrong, for good. A bubble
// begins in the year 2000.
func TestAWrongClockIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newIncrements(slowSender{turn: make(chan struct{}, 1)}, IncrementsConfig{})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/increments", strings.NewReader(`{"counter":"a","time":"2026-05-04T03:02:01Z"}`))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("got %d, %s; want 503, to be repeated later", w.Code, w.Body)
		}
	})
}
