// Command webserver is an HTTP server that counts its requests by route and status, with countmill
// inside. No other process runs, and the counts survive a restart.
//
//	go run ./examples/webserver
//	curl http://127.0.0.1:8081/hello/gopher
//	curl http://127.0.0.1:8081/counts
//
// Copy middleware.go into a service of your own. Package embedded is all of countmill in it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/countmill/countmill/embedded"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "`address` to serve on")
	data := flag.String("data", "webserver-data", "`directory` of the counters")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ln, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, ln, *data)
	}
	if err != nil {
		slog.Error("webserver ended", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx ends or the counting fails.
func run(ctx context.Context, ln net.Listener, data string) error {
	db, err := embedded.Open(data)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	srv := &http.Server{Handler: countRoutes(routes(db), db), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case <-ctx.Done():
	case <-db.Done(): // by itself; Close says why
	case err = <-served:
		served <- http.ErrServerClosed
	}
	// Detached: a stop request must not cancel the work that it waits for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	err = errors.Join(err, srv.Shutdown(ctx))
	<-served
	return errors.Join(err, db.Close()) // after the last request was counted
}

func routes(db *embedded.DB) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Hello, %s!\n", r.PathValue("name"))
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, r *http.Request) {
		for total, err := range db.List(r.Context(), prefix) {
			if err != nil {
				http.Error(w, "the counts cannot be read", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintf(w, "%8d  %s\n", total.Total, total.Counter)
		}
	})
	return mux
}
