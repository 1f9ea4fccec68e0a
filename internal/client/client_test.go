package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ server, token, want string }{
		{"ftp://h:1", "", "must be http://HOST:PORT"},
		{"http://h:1/?a=b", "", "must be http://HOST:PORT"},
		{"http://me:secret@h:1", "", "no name and no password"},
		{"http://192.0.2.1:1", "t", "is not sent to 192.0.2.1:1"},
	} {
		if _, err := New(test.server, test.token, false); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q", test.server, err, test.want)
		}
	}
	if cl, err := New("h:1/", "", false); err != nil || cl.Base() != "http://h:1" {
		t.Errorf("got %v, %v, want http://h:1", cl, err)
	}
	if _, err := New("http://192.0.2.1:1", "t", true); err != nil {
		t.Errorf("insecure: %v", err)
	}
}

func TestCounterPath(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a/b": "/v1/counters/a%2Fb", ".": "/v1/counters/%2E", "..": "/v1/counters/%2E%2E", "a.b": "/v1/counters/a.b"} {
		if got := CounterPath(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err          error
		again, maybe bool
	}{
		"never sent":   {&Unreachable{base: "x", cause: errors.New("refused")}, true, false},
		"cut":          {errors.New("EOF"), true, true},
		"bad request":  {&Problem{Status: 400}, false, false},
		"too many":     {&Problem{Status: 429}, true, false},
		"unavailable":  {&Problem{Status: 503}, true, false},
		"full disk":    {&Problem{Status: 507}, true, false},
		"unknown":      {&Problem{Status: 504}, true, true},
		"server error": {&Problem{Status: 500}, false, true},
	} {
		if again, maybe := Classify(test.err); again != test.again || maybe != test.maybe {
			t.Errorf("%s: got again %t, maybe %t; want %t, %t", name, again, maybe, test.again, test.maybe)
		}
	}
}

// Pause waits no longer than there is time, and at least for as long as the server asks.
func TestPause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !Pause(ctx, 0, errors.New("x")) {
		t.Error("no time for a first pause of 0.1s")
	}
	if Pause(ctx, 0, &Problem{Status: 503, retryAfter: 2 * time.Minute}) {
		t.Error("there was time for 2m within 1m")
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t" {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Write([]byte("ok"))
	}))
	defer server.Close()
	with, _ := New(server.URL, "t", false)
	if got, err := with.Get(t.Context(), time.Minute, "/"); string(got) != "ok" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	without, _ := New(server.URL, "", false)
	_, err := without.Get(t.Context(), time.Minute, "/")
	problem, ok := errors.AsType[*Problem](err)
	if !ok || problem.retryAfter != 7*time.Second || !strings.Contains(err.Error(), "give one with --token-file") {
		t.Errorf("got %v, want a problem", err)
	}
}
