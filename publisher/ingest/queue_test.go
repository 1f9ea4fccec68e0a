package ingest

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
	"github.com/countmill/countmill/internal/env"
)

// takeSteadily has a queue take a number of increments a second, for as long as asked.
func takeSteadily(t *testing.T, q *queue, now *time.Time, perSecond int, length time.Duration) {
	t.Helper()
	const step = 10 * time.Millisecond
	n := perSecond / 100
	for ; length > 0; length -= step {
		if err := q.enter(n, *now); err != nil {
			t.Fatalf("%d increments beside %d: %v", n, q.waiting, err)
		}
		*now = now.Add(step)
		q.leave(n, true, *now)
	}
}

// room is how many increments one at a time may wait.
func room(q *queue, now time.Time, most int) (n int) {
	for n < most && q.enter(100, now) == nil {
		n += 100
	}
	q.leave(n, false, now)
	return n
}

func TestQueueRefusesWhatWouldWaitTooLong(t *testing.T) {
	t.Parallel()
	const most, plenty = 2500 * time.Millisecond, 1_000_000
	for _, tc := range []struct {
		name      string
		happens   func(q *queue, now *time.Time)
		want, off int
	}{
		{"nothing is known", func(*queue, *time.Time) {}, plenty, 0},
		{"too little is known", func(q *queue, now *time.Time) { takeSteadily(t, q, now, 10_000, 100*time.Millisecond) }, plenty, 0},
		{"the first batch was slow", func(q *queue, now *time.Time) {
			for range 8 {
				if err := q.enter(50_000, *now); err != nil {
					t.Fatal(err)
				}
			}
			*now = now.Add(1500 * time.Millisecond)
			q.leave(50_000, true, *now)
			q.leave(350_000, false, *now)
		}, plenty, 0},
		{"fast", func(q *queue, now *time.Time) { takeSteadily(t, q, now, 100_000, 3*time.Second) }, 250_000, 200},
		{"slow", func(q *queue, now *time.Time) { takeSteadily(t, q, now, 10_000, 3*time.Second) }, 25_000, 200},
		{"very slow", func(q *queue, now *time.Time) { takeSteadily(t, q, now, 100, 3*time.Second) }, always, 0},
		{"idle since", func(q *queue, now *time.Time) {
			takeSteadily(t, q, now, 10_000, 3*time.Second)
			*now = now.Add(time.Hour)
		}, 25_000, 200},
		{"faster since", func(q *queue, now *time.Time) {
			takeSteadily(t, q, now, 10_000, 20*time.Second)
			takeSteadily(t, q, now, 100_000, 20*time.Second)
		}, 250_000, 10_000},
		{"stopped since", func(q *queue, now *time.Time) {
			takeSteadily(t, q, now, 100_000, 3*time.Second)
			if err := q.enter(1, *now); err != nil {
				t.Fatal(err)
			}
			for range 300 {
				*now = now.Add(100 * time.Millisecond)
				_ = q.full(1, *now) // as others come and ask
			}
			q.leave(1, false, *now)
		}, always, 0},
	} {
		q, now := &queue{most: most}, time.Unix(1e9, 0)
		tc.happens(q, &now)
		if got := room(q, now, plenty); got < tc.want-tc.off || got > tc.want+tc.off {
			t.Errorf("%s: %d may wait, want %d", tc.name, got, tc.want)
		}
		if err := q.enter(plenty, now); err != nil {
			t.Errorf("%s: one large request is refused where nothing waits: %v", tc.name, err)
		}
		if err := q.full(1, now); (err != nil) != (tc.want < plenty) || err != nil && !errors.Is(err, countmill.ErrOverloaded) {
			t.Errorf("%s: one increment behind %d: got %v", tc.name, plenty, err)
		}
	}
}

// A slowSender takes a request a second.
type slowSender struct{ turn chan struct{} }

func (s slowSender) Publish(ctx context.Context, _ ...countmill.Increment) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(time.Second)
	<-s.turn
	return nil
}

func (s slowSender) PublishKeyed(ctx context.Context, _, _ string, incs ...countmill.Increment) error {
	return s.Publish(ctx, incs...)
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

// Of many requests at once those are taken that can be answered in time, whoever is refused
// is told when to come again, and nobody waits in vain.
func TestOverloadRefusesBeforeTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(env.Earliest)) // a bubble begins in the year 2000
		h := New(slowSender{make(chan struct{}, 1)}, Config{Timeout: 20 * time.Second})
		body := strings.Repeat(`{"counter":"a"}`+"\n", 3000)
		answers := make(chan int, 100)
		var unread atomic.Int64
		for range 100 {
			go func() {
				from := &toldReader{Reader: strings.NewReader(body)}
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/v1/increments", from)
				r.Header.Set("Content-Type", "application/x-ndjson")
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
		h := New(slowSender{make(chan struct{}, 1)}, Config{})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/increments", strings.NewReader(`{"counter":"a","time":"2026-05-04T03:02:01Z"}`))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("got %d, %s; want 503, to be repeated later", w.Code, w.Body)
		}
	})
}
