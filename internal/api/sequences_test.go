package api_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
)

// fakeSequences record each request, and always give the same answer.
type fakeSequences struct {
	asked string
	state store.SequenceState
	err   error
}

func (f *fakeSequences) Next(_ context.Context, r countmill.NextRequest) (countmill.Values, error) {
	f.asked = fmt.Sprintf("next %q %q %d", r.Sequence, r.ID, r.Count)
	if !r.Time.IsZero() {
		f.asked += r.Time.UTC().Format(" " + time.RFC3339Nano)
	}
	return countmill.Values{First: 3, Last: 7}, f.err
}

func (f *fakeSequences) State(_ context.Context, sequence string) (store.SequenceState, error) {
	f.asked = fmt.Sprintf("state %q", sequence)
	return f.state, f.err
}

func (f *fakeSequences) Delete(_ context.Context, sequence string) (store.SequenceState, error) {
	f.asked = fmt.Sprintf("delete %q", sequence)
	return f.state, f.err
}

const nextPath, sequencePath = "/v1/sequences/next", "/v1/sequences?sequence="

func TestSequences(t *testing.T) {
	t.Parallel()
	f := &fakeSequences{state: store.SequenceState{Last: 1<<63 - 1, Used: true}}
	s := ask(t, api.Services{Sequences: f}, api.Config{})
	for _, tc := range []struct{ method, target, body, asked, want string }{
		{"POST", nextPath, `{"sequence":"a b"}`, `next "a b" "" 0`, `{"value":3}`},
		{"POST", nextPath, `{"sequence":"a","id":"x"}`, `next "a" "x" 0`, `{"value":3}`},
		{"POST", nextPath, `{"sequence":"a","count":5}`, `next "a" "" 5`, `{"first":3,"last":7}`},
		{"POST", nextPath, `{"sequence":"a","id":"x","time":"2026-11-21T05:04:03.120000Z"}`, `next "a" "x" 0 2026-11-21T05:04:03.12Z`, `{"value":3}`},
		{"POST", nextPath, `{"sequence":"a","id":"x","time":"2026-11-21T05:04:03+01:00"}`, `next "a" "x" 0 2026-11-21T04:04:03Z`, `{"value":3}`},
		{"GET", sequencePath + "a%20b", "", `state "a b"`, `{"sequence":"a b","last":9223372036854775807,"exists":true}`},
		{"DELETE", sequencePath + "a", "", `delete "a"`, `{"sequence":"a","last":9223372036854775807,"exists":true}`},
	} {
		if status, text, _ := s.call(t, tc.method, tc.target, tc.body); status != 200 || text != tc.want || f.asked != tc.asked {
			t.Errorf("%s %s %s: got %d %s, asked for %s; want %s and %s", tc.method, tc.target, tc.body, status, text, f.asked, tc.want, tc.asked)
		}
	}
	f.state = store.SequenceState{Last: 7, Used: true, Deleted: asOf}
	s.want(t, "GET", sequencePath+"a", "", 200, `{"sequence":"a","last":7,"exists":false}`)
}

// A call counts towards each limit of a token, as an increment does. A sequence is new, even if a counter has its name.
func TestSequencesCountTowardsLimits(t *testing.T) {
	t.Parallel()
	for field, l := range map[string]auth.Limits{
		"increments_per_second": {Increments: 3},
		"bytes_per_second":      {Bytes: 60},
		"new_counters_per_hour": {NewCounters: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(clock.Earliest)) // a bubble begins in the year 2000
			f := &fakeSequences{}
			s := ask(t, api.Services{Sequences: f, Sender: taker{}}, api.Config{})
			as := surface{authtest.With(t, s, auth.Token{Name: "limited", Scopes: []auth.Scope{auth.Publish}, Limits: l})}
			as.want(t, "POST", "/v1/increments", `{"counter":"a"}`, 202, "")
			as.want(t, "POST", nextPath, `{"sequence":"a","id":"xxxx"}`, 200, "")
			as.want(t, "POST", nextPath, `{"sequence":"b","id":"xxxx"}`, map[bool]int{true: 429, false: 200}[l.NewCounters > 0], "")
			f.asked = ""
			as.want(t, "POST", nextPath, `{"sequence":"c"}`, 429, `"field":"`+field+`"`)
			if f.asked != "" {
				t.Errorf("%s: asked for %s, want nothing", field, f.asked)
			}
			s.of(t, "c").want(t, "POST", nextPath, `{"sequence":"c"}`, 200, "")
		})
	}
}

// heldSequences keep calls waiting until held is closed.
type heldSequences struct {
	fakeSequences
	held chan struct{}
}

func (f *heldSequences) Next(context.Context, countmill.NextRequest) (v countmill.Values, err error) {
	<-f.held
	return v, nil
}

// However many calls for one sequence a caller has, others get values of it, and the caller those of others.
func TestACallerLeavesRoomInASequence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &heldSequences{held: make(chan struct{})}
		s := ask(t, api.Services{Sequences: f}, api.Config{})
		greedy, other := surface{authtest.As(t, s, "greedy")}, surface{authtest.As(t, s, "other")}
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { greedy.want(t, "POST", nextPath, `{"sequence":"a"}`, 200, "") })
		}
		synctest.Wait()
		all.Go(func() { greedy.want(t, "POST", nextPath, `{"sequence":"a"}`, 429, ":overloaded") })
		all.Go(func() { greedy.want(t, "POST", nextPath, `{"sequence":"b"}`, 200, "") })
		all.Go(func() { other.want(t, "POST", nextPath, `{"sequence":"a"}`, 200, "") })
		synctest.Wait()
		close(f.held)
		all.Wait()
		greedy.want(t, "POST", nextPath, `{"sequence":"a"}`, 200, "")
	})
}

// A bad request is refused before anything is asked for. The problem names the field and its limit.
func TestRefusedSequences(t *testing.T) {
	t.Parallel()
	f := &fakeSequences{}
	full := func() error {
		return httpserver.NewProblem(http.StatusInsufficientStorage, "insufficient-storage", "no space", "no space").RetryAfter(time.Minute)
	}
	s := ask(t, api.Services{Sequences: f}, api.Config{})
	for _, tc := range []struct {
		s                    surface
		method, target, body string
		status               int
		says                 string
	}{
		{s, "POST", nextPath, `{"sequence":"a","id":""}`, 400, "id is empty (limit: 1 to 128 bytes)"},
		{s, "POST", nextPath, `{"sequence":"a","count":0}`, 400, "count is out of range (limit: 1 to 1000)"},
		{s, "POST", nextPath, `{"sequence":"a","id":"x","time":"yesterday"}`, 400, "time is not a time (limit: RFC 3339"},
		{s, "POST", nextPath, `{"sequence":"a","id":"x","time":"0001-01-01T00:00:00Z"}`, 400, `"field":"time"`},
		{s, "DELETE", sequencePath + "=group", "", 400, `"field":"sequence"`},
		{s.of(t, "user:"), "POST", nextPath, `{"sequence":"order:1"}`, 403, `"field":"sequence","limit":"user:*"`},
		{s.of(t, "user:"), "POST", nextPath, `{"sequence":""}`, 400, `"field":"sequence","limit":"1 to 500 bytes"`},
		{s.of(t, "user:"), "POST", nextPath, `{"sequence":"=group"}`, 400, `"field":"sequence"`},
		{s.of(t, "user:"), "POST", nextPath, `{"sequence":"order:1","count":1001}`, 400, `"field":"count"`},
		{s.of(t, "user:"), "GET", sequencePath + "order:1", "", 403, `"field":"sequence","limit":"user:*"`},
		{s.of(t, "user:"), "DELETE", sequencePath + "order:1", "", 403, `"field":"sequence","limit":"user:*"`},
		{ask(t, api.Services{Sequences: f}, api.Config{Increments: api.IncrementsConfig{Admit: full}}),
			"POST", nextPath, `{"sequence":"a"}`, 507, ":insufficient-storage"},
		{ask(t, api.Services{}, api.Config{}), "GET", sequencePath + "a", "", 404, "is served by the role reader or aggregator"},
	} {
		tc.s.want(t, tc.method, tc.target, tc.body, tc.status, tc.says)
		if f.asked != "" {
			t.Errorf("%s %s %s: asked for %s, want nothing", tc.method, tc.target, tc.body, f.asked)
			f.asked = ""
		}
	}
	s.of(t, "user:").want(t, "POST", nextPath, `{"sequence":"user:1"}`, 200, `{"value":3}`)
}

func TestProblemsOfSequences(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		status int
		says   string
	}{
		{countmill.ErrConflict, 409, `:other-count","title":"another count"`},
		{&sequence.CountError{Given: 1, Asked: 2}, 409, `this id got 1 value before, and now asks for 2","field":"count","limit":"1"`},
		{countmill.ErrIDExpired, 410, ":id-expired"},
		{countmill.ErrExhausted, 409, ":exhausted"},
		{&countmill.FieldError{Field: "count", Problem: "is out of range", Limit: "1 to 1000"}, 400, `"field":"count","limit":"1 to 1000"`},
		{countmill.ErrOverloaded, 429, ":overloaded"},
	} {
		s := ask(t, api.Services{Sequences: &fakeSequences{err: fmt.Errorf("sequence %q: %w", "a", tc.err)}}, api.Config{})
		s.want(t, "POST", nextPath, `{"sequence":"a","id":"x","count":2}`, tc.status, tc.says)
	}
}
