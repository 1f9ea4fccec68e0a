// Command comments serves a list of comments in the order in which they were posted. Readers go to the next
// and to the previous page by key alone, without an offset and without a count.
//
//	go run ./examples/comments
//	curl -d '{"user":"ann","text":"Hello","id":"1","time":"'$(date -u +%FT%TZ)'"}' http://127.0.0.1:8082/comments
//	curl 'http://127.0.0.1:8082/comments?limit=10'              the oldest; then after=NEXT
//	curl 'http://127.0.0.1:8082/comments?limit=10&before='      the newest; then before=PREV
//
// The id and the time are of the first try. A program that repeats it sends both again, within 8 days.
//
// A key is the time, the user, and a number of that user's own sequence. Package embedded has the
// sequences, and Pebble the comments. comments.go is the technique.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/embedded"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8082", "`address` to serve on")
	data := flag.String("data", "comments-data", "`directory` of the comments and the sequences")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *data); err != nil {
		fmt.Fprintln(os.Stderr, "comments:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It prints the address when it answers.
func run(ctx context.Context, listen, data string) (err error) {
	numbers, err := embedded.Open(filepath.Join(data, "countmill"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, numbers.Close()) }()
	t, err := openTable(filepath.Join(data, "comments"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: routes(&list{numbers, t}), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	fmt.Println("http://" + ln.Addr().String())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case <-ctx.Done():
	case <-numbers.Done(): // by itself; Close says why
	case err := <-served:
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}

// maxLimit is the most comments of a page.
const maxLimit = 1000

func routes(l *list) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /comments", func(w http.ResponseWriter, r *http.Request) {
		var c comment
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&c)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		k, err := l.post(r.Context(), c)
		answer(w, map[string]string{"key": k}, err)
	})
	mux.HandleFunc("GET /comments", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		limit, err := strconv.Atoi(query.Get("limit"))
		if query.Get("limit") == "" {
			limit, err = 50, nil
		}
		if err != nil || limit < 1 || limit > maxLimit {
			http.Error(w, fmt.Sprintf("limit must be 1 to %d", maxLimit), http.StatusBadRequest)
			return
		}
		var p page
		if query.Has("before") {
			p, err = l.pageBefore(query.Get("before"), limit)
		} else {
			p, err = l.pageAfter(query.Get("after"), limit)
		}
		answer(w, p, err)
	})
	return mux
}

func answer(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, countmill.ErrInvalid), errors.Is(err, countmill.ErrIDExpired):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil: // the caller repeats the post with the same id and time
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the caller has gone
	}
}
