package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
)

// ServeHTTP serves the handlers with which countmill's HTTP is compared, until ctx ends. Kind "bare" is
// a handler that reads the body and answers. "decode" is countmill's HTTP API, which checks everything
// and drops it. /seen returns how many increments, or requests, were answered.
func ServeHTTP(ctx context.Context, kind, addr string) error {
	var seen atomic.Int64
	mux := http.NewServeMux()
	switch kind {
	case "bare":
		mux.HandleFunc("POST /v1/increments", func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			seen.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "{\"accepted\":1}\n")
		})
	case "decode":
		decode := api.New(api.Services{Sender: nowhere{&seen}}, api.Config{})
		router := httpserver.NewRouter(nil)
		decode.Register(router)
		mux.Handle("POST /v1/increments", router)
	default:
		return fmt.Errorf("no server is called %q", kind)
	}
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /seen", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, seen.Load()) })
	server := &http.Server{Addr: addr, Handler: mux}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// nowhere accepts increments and counts them.
type nowhere struct{ seen *atomic.Int64 }

func (n nowhere) Publish(_ context.Context, incs ...countmill.Increment) (publisher.Sent, error) {
	n.seen.Add(int64(len(incs)))
	return publisher.Sent{}, nil
}

func (n nowhere) PublishPast(ctx context.Context, _ time.Time, _, _ string, incs ...countmill.Increment) (publisher.Sent, error) {
	return n.Publish(ctx, incs...)
}

func (n nowhere) PublishKeyed(ctx context.Context, _, _ string, incs ...countmill.Increment) (publisher.Sent, error) {
	return n.Publish(ctx, incs...)
}
