package main

import (
	"cmp"
	"fmt"
	"net/http"
)

// prefix is what the names of all counters here begin with.
const prefix = "route:"

// An adder counts without waiting; a *publisher.Publisher is one.
type adder interface {
	Add(counter string, delta int64) error
}

// countRoutes counts every request that mux answers, under the pattern that matched and
// the class of the status: "route:GET /hello/{name} 2xx". Patterns, because paths are
// what strangers send: there is no end to them.
func countRoutes(mux *http.ServeMux, counts adder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			// The mux has set the pattern; it is empty where none matched. The error says
			// that memory is full or the publisher closed: a request is no place to wait for
			// either, and the publisher's Stats count what it refused.
			_ = counts.Add(fmt.Sprintf("%s%s %dxx", prefix, cmp.Or(r.Pattern, "none"), rec.status/100), 1)
		}()
		mux.ServeHTTP(rec, r)
	})
}

// A recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach what the recorder hides.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
