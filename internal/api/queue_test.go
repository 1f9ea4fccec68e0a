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

// A sender that has little to take shows no speed.
func TestLittleShowsNoSpeed(t *testing.T) {
	t.Parallel()
	q, now := &queue{most: 2 * time.Second, limit: 600_000}, time.Unix(1e9, 0)
	for range 100 {
		ticket, err := q.enter(t.Context(), "a", 10, now)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
		q.leave(ticket, true, now)
	}
	if q.speed.taken != 0 || q.speed.busy != 0 {
		t.Errorf("%g were taken in %s, want nothing known", q.speed.taken, q.speed.busy)
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

// A sender whose work is refused or abandoned looks slow. A large request has its turn all the same.
func TestWorkInVainKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{most: 2 * time.Second, limit: 600_000}
		enter := func(caller string, cost int) ticket {
			t.Helper()
			entered, err := q.enter(t.Context(), caller, cost, time.Now())
			if err != nil {
				t.Fatalf("%d increments of %s: %v", cost, caller, err)
			}
			return entered
		}
		vain := enter("a", always/2)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			next := enter("a", always/2)
			q.leave(vain, false, time.Now())
			vain = next
		}
		if err := q.full("b", always+1, time.Now()); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { q.leave(vain, false, time.Now()) })
		q.leave(enter("b", always+1), true, time.Now())
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
