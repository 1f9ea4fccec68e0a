package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/publisher"
)

// nobody is a ResponseWriter that costs nothing, as net/http's own is outside of the
// measurement.
type nobody struct{ header http.Header }

func (w *nobody) Header() http.Header               { return w.header }
func (w *nobody) Write(p []byte) (int, error)       { return len(p), nil }
func (w *nobody) WriteHeader(int)                   {}
func (w *nobody) SetReadDeadline(t time.Time) error { return nil }

type nowhere struct{ Sender }

func (nowhere) Publish(context.Context, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, nil
}

func BenchmarkPost(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "{\"accepted\":1}\n")
	})
	for _, bc := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"ingest", routeOf(newIncrements(nowhere{}, IncrementsConfig{}), "/v1/increments")}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			text := []byte(`{"counter":"page:/home","delta":3}`)
			body := bytes.NewReader(text)
			r := httptest.NewRequest("POST", "/v1/increments", body)
			r.Header.Set("Content-Type", "application/json")
			w := &nobody{make(http.Header)}
			for b.Loop() {
				body.Reset(text)
				r.Body = io.NopCloser(body)
				bc.h.ServeHTTP(w, r)
			}
		})
	}
}
