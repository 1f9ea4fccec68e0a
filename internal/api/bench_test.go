package api

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
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

type nowhere struct{}

func (nowhere) Publish(context.Context, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, nil
}

func (nowhere) PublishPast(context.Context, time.Time, string, string, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, nil
}

func (nowhere) PublishKeyed(context.Context, string, string, ...countmill.Increment) (publisher.Sent, error) {
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

func BenchmarkPostOverLoopback(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	for _, bc := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"ingest", routeOf(newIncrements(nowhere{}, IncrementsConfig{}), "/v1/increments")}} {
		b.Run(bc.name, func(b *testing.B) {
			srv := httptest.NewServer(bc.h)
			defer srv.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			text := []byte("POST /v1/increments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n" + `{"counter":"page:/home","delta":3}`)
			for b.Loop() {
				conn.Write(text)
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 202 {
					b.Fatal(resp, err)
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
}
