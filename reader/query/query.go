package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/deadline"
	"github.com/countmill/countmill/reader"
)

// A Reader gives totals. *reader.Reader is one; its methods have the promises.
type Reader interface {
	Totals(ctx context.Context, counters []string, maxStaleness time.Duration) ([]reader.Total, error)
	List(ctx context.Context, prefix, after string, limit int) (reader.Page, error)
	Pipeline(ctx context.Context) reader.Pipeline
}

// Config bounds requests. Its zero value works.
type Config struct {
	// Timeout bounds the reads of one request. Default 30s.
	Timeout time.Duration

	// BodyTimeout is how long a request's body may take to arrive. Default 30s.
	BodyTimeout time.Duration

	// MaxPending bounds the bodies held at once, in bytes: what would go over it is
	// refused with 429. Never below the 8 MiB of one. Default 64 MiB.
	MaxPending int

	// MaxWatchers is how many watchers are served at once. Default 1000.
	MaxWatchers int

	// KeepAlive is the longest silence that a watcher gets. Default 15s.
	KeepAlive time.Duration

	// WriteTimeout is how long a watcher may take to read an event before it is
	// dropped. Default 10s.
	WriteTimeout time.Duration

	// Logger gets what clients are not told. Default: discarded.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 30*time.Second)
	c.MaxPending = max(cmp.Or(c.MaxPending, 64<<20), api.MaxBody+1)
	c.MaxWatchers = cmp.Or(c.MaxWatchers, 1000)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	for _, v := range []struct {
		name string
		bad  bool
		val  any
	}{
		{"Timeout", c.Timeout < 0, c.Timeout}, {"BodyTimeout", c.BodyTimeout < 0, c.BodyTimeout},
		{"MaxPending", c.MaxPending < 0, c.MaxPending}, {"MaxWatchers", c.MaxWatchers < 0, c.MaxWatchers},
		{"KeepAlive", c.KeepAlive < 0, c.KeepAlive}, {"WriteTimeout", c.WriteTimeout < 0, c.WriteTimeout},
	} {
		if v.bad {
			errs = append(errs, fmt.Errorf("%s must not be negative, got %v", v.name, v.val))
		}
	}
	return errors.Join(errs...)
}

// A Handler answers reads.
type Handler struct {
	reader   Reader
	cfg      Config
	router   *api.Router
	pending  atomic.Int64 // bytes of bodies
	watchers atomic.Int64
	scrapes  atomic.Int64
	unread   atomic.Int64    // bytes of metrics that clients have not read
	closing  context.Context // ends all watchers
	close    context.CancelFunc
}

var _ http.Handler = (*Handler)(nil)

// New returns a handler that serves what r gives. The error reports all that is wrong
// with the config.
func New(r Reader, cfg Config) (*Handler, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	h := &Handler{reader: r, cfg: cfg.withDefaults()}
	h.router = api.NewRouter(h.cfg.Logger)
	h.closing, h.close = context.WithCancel(context.Background())
	h.Register(h.router)
	return h, nil
}

// Register adds the handler's routes to a router that serves others too.
func (h *Handler) Register(rt *api.Router) {
	read := access.PerCounter(access.Read)
	rt.Handle(http.MethodGet, "/v1/totals", read, h.answer(h.totals))
	rt.Handle(http.MethodPost, "/v1/totals", read, h.answer(h.manyTotals))
	rt.Handle(http.MethodGet, "/v1/counters", read, h.answer(h.list))
	rt.Handle(http.MethodGet, "/v1/counters/{name}", read, h.answer(h.counter))
	rt.Handle(http.MethodGet, "/v1/watch", read, http.HandlerFunc(h.watch))
	rt.Handle(http.MethodGet, "/metrics/counters", read, http.HandlerFunc(h.metrics))
}

// ServeHTTP answers one request, where the handler has a server for itself.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.router.ServeHTTP(w, r) }

// Close ends all watchers and refuses new ones. Other requests are still answered. It
// does not wait. A server that is shut down must call it (OnShutdown), as it waits for
// streams that nothing else ends.
func (h *Handler) Close() { h.close() }

// Watchers is how many there are.
func (h *Handler) Watchers() int { return int(h.watchers.Load()) }

// answer makes a handler of a function that returns what to answer with. The function's
// context, and not its request's, is bounded in time.
func (h *Handler) answer(f func(context.Context, http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := deadline.After(r.Context(), h.cfg.Timeout)
		defer cancel()
		v, err := f(ctx, w, r)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		api.WriteJSON(w, http.StatusOK, v)
	})
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	api.WriteError(w, r, h.cfg.Logger, sayWhichCounter(err))
}
