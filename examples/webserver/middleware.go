package main

import (
	"cmp"
	"fmt"
	"net/http"
)

// prefix begins the names of all counters here.
const prefix = "route:"

// An adder counts without waiting; an *embedded.DB is one.
type adder interface {
	Add(counter string, delta int64) error
}

// countRoutes counts every request that mux answers, under the matched pattern and the class of the
// status: "route:GET /hello/{name} 2xx". It counts patterns and not paths, because strangers choose the
// paths and there is no limit to their number.
func countRoutes(mux *http.ServeMux, counts adder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			// The mux has set the pattern; it is empty if none matched. An error means that memory is
			// full or the publisher is closed. A request should wait for neither, and the publisher's
			// Stats count the refused increments.
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

// Unwrap lets http.ResponseController use the features that the recorder hides.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
