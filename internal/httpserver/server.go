package httpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/countmill/countmill/internal/auth"
)

// ServerConfig bounds what clients can make a server hold and wait for. Its zero value
// works.
type ServerConfig struct {
	// ReadTimeout is how long a whole request may take to arrive, unless the handler
	// uses a BodyReader, which has its own. Default 60s.
	ReadTimeout time.Duration
	// WriteTimeout is how long a request may take from its header to the end of its
	// answer. Keep it above ReadTimeout and what handlers allow themselves. Default 90s.
	WriteTimeout time.Duration
	// MaxConns is how many connections are open at once, at least 2. Callers that were let in have
	// three quarters of them; connLimit has the rules. Default 10000, fewer if the system lets a process have
	// fewer files open.
	MaxConns int
	// Log gets what goes wrong outside handlers. Default discards.
	Log *slog.Logger
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 60*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 90*time.Second)
	c.MaxConns = cmp.Or(c.MaxConns, defaultConns(OpenFiles()))
	c.Log = orDiscard(c.Log)
	return c
}

// keptFiles are open files that are not clients' connections. Pebble has up to 500 tables open.
// Its log, its directory and connections to other servers need files too.
const keptFiles = 600

// defaultConns is how many connections fit in a number of open files, 0 if it is unknown.
func defaultConns(files uint64) int {
	const most = 10_000
	if files == 0 || files >= most+keptFiles {
		return most
	}
	return int(max(files-min(keptFiles, files), files/4, 1))
}

// A Server is an http.Server whose limits are all set.
type Server struct {
	http  *http.Server
	conns *connLimit
}

// NewServer returns a server that answers with h. A panic of h is logged and answered
// with a 500 problem.
func NewServer(h http.Handler, cfg ServerConfig) *Server {
	cfg = cfg.withDefaults()
	conns := limitConns(cfg.MaxConns)
	s := &Server{conns: conns, http: &http.Server{
		Handler:                      answerAtOnce(Recover(h, cfg.Log)),
		ReadHeaderTimeout:            5 * time.Second,
		ReadTimeout:                  cfg.ReadTimeout,
		WriteTimeout:                 cfg.WriteTimeout,
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               256 << 10, // a query of 100 counters of 500 bytes fits, all escaped
		ErrorLog:                     slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true, // OPTIONS * is a 404 problem like any other path
		ConnContext:                  withConn,
		ConnState:                    conns.state,
	}}
	s.http.RegisterOnShutdown(conns.stop)
	return s
}

// Serve answers requests on ln until Shutdown or Close, and then returns nil. It
// closes ln.
func (s *Server) Serve(ln net.Listener) error {
	s.conns.Listener = ln
	err := s.http.Serve(s.conns)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// HurryBodies is for a process that stops: from now on a request has a moment to arrive whole. Otherwise it
// is refused.
func (s *Server) HurryBodies() { s.conns.hurryBodies(time.Now().Add(hurry)) }

// Shutdown stops accepting and waits until every request has been answered or ctx
// ends; then it cuts those left and returns ctx's error. End streams before: they do
// not end by themselves.
func (s *Server) Shutdown(ctx context.Context) error {
	s.HurryBodies()
	err := s.http.Shutdown(ctx)
	if err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// Close cuts all connections.
func (s *Server) Close() error { return s.http.Close() }

// ExtendWrite gives an answer without an end d more to be written, in place of the
// server's WriteTimeout. A stream calls it before every event, so that a client that
// stops reading does not hold it for ever.
func ExtendWrite(w http.ResponseWriter, d time.Duration) error {
	return http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// Recover answers a panic of h with a 500 problem and logs it. Where the answer had
// begun it cuts the connection, so that nobody takes half an answer for a whole one.
func Recover(h http.Handler, log *slog.Logger) http.Handler {
	log = orDiscard(log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tracked := &trackedWriter{ResponseWriter: w}
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			log.LogAttrs(r.Context(), slog.LevelError, "handler panicked", slog.String("panic", auth.Redact(fmt.Sprint(v))),
				slog.String("method", r.Method), slog.String("path", auth.Redact(r.URL.EscapedPath())), slog.String("stack", string(debug.Stack())))
			if tracked.begun {
				panic(http.ErrAbortHandler)
			}
			clear(w.Header())
			WriteError(w, r, log, fmt.Errorf("panic: %v", v))
		}()
		h.ServeHTTP(tracked, r)
	})
}

// A trackedWriter knows whether the answer has begun.
type trackedWriter struct {
	http.ResponseWriter
	begun bool
	first func() // is called before it begins; or nil
}

func (w *trackedWriter) begin() {
	if !w.begun && w.first != nil {
		w.first()
	}
	w.begun = true
}

func (w *trackedWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.begin()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *trackedWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController flushes with.
func (w *trackedWriter) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController set deadlines.
func (w *trackedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
