package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/httpapi"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// An App is roles on their backends behind one listener. Run it once, or Close it.
type App struct {
	cfg      Config
	log      *slog.Logger
	backends *backends
	listener net.Listener
	server   *api.Server

	// The roles; nil for a role that this process does not run.
	publisher  *publisher.Publisher
	aggregator *aggregator.Aggregator
	reader     *reader.Reader
	admin      *admin.Admin // with the reader
	intake     *aggregator.Intake

	space    *space         // nil: the store is on no disk of this machine
	tokens   *access.Tokens // nil: anybody may call
	refused  api.Refusals
	metrics  *metrics
	http     *httpapi.API
	stopping atomic.Bool
	ran      atomic.Bool

	// aggregating is closed when the aggregator has ended, with its error in
	// aggregatorErr.
	aggregating    chan struct{}
	aggregatorErr  error
	stopAggregator context.CancelFunc

	taking     sync.WaitGroup // of messages that the bus gave up
	stopTaking context.CancelFunc

	sweeping   sync.WaitGroup
	stopSweeps context.CancelFunc
}

// New binds the listener, opens the backends and makes the roles. From here on
// connections are accepted by the system; Run answers them. The error matches ErrUsage
// if the configuration is at fault.
func New(cfg Config) (*App, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return newApp(cfg, openBackends)
}

// newApp lets tests bring backends that fail or are shared.
func newApp(cfg Config, open func(Config) (*backends, error)) (*App, error) {
	cfg = cfg.withDefaults().Resolved()
	a := &App{cfg: cfg, log: cfg.Logger, aggregating: make(chan struct{})}
	if err := a.open(open); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open(open func(Config) (*backends, error)) error {
	var err error
	if a.cfg.Tokens != "" {
		if a.tokens, err = access.Open(a.cfg.Tokens, a.log.With("file", a.cfg.Tokens)); err != nil {
			return fmt.Errorf("--tokens: %w", err)
		}
	}
	if a.listener, err = listen(a.cfg.Listen); err != nil {
		return err
	}
	if err := a.checkAddr(); err != nil {
		return err
	}
	if a.backends, err = open(a.cfg); err != nil {
		return err
	}
	if err := a.setWindow(); err != nil {
		return err
	}
	if err := a.setRules(); err != nil {
		return err
	}
	if disk := a.backends.disk; disk != nil {
		a.space = newSpace(disk.FileSystem, a.cfg.MinFree, a.log.With("dir", disk.Dir()))
	}
	a.metrics = newMetrics()
	if err := a.makeRoles(); err != nil {
		return err
	}
	a.metrics.collect(a)
	if a.http, err = a.newHTTP(); err != nil {
		return err
	}
	h, err := api.GuardPages(a.routes(), api.PagesConfig{Origins: a.cfg.CORSOrigins, OnlyLocal: a.tokens == nil && !a.cfg.Insecure, Log: a.log})
	if err != nil {
		return fmt.Errorf("--cors-origin: %w", err)
	}
	a.server, err = newServer(h, a.cfg)
	return err
}

func listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--listen %s: the address is in use; is another countmill running? Choose another with --listen HOST:PORT", addr)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return nil, fmt.Errorf("--listen %s: %w", addr, err)
}

// checkAddr is checkAccess for the address that the name of a host resolved to.
func (a *App) checkAddr() error {
	addr, ok := a.listener.Addr().(*net.TCPAddr)
	if a.tokens != nil || a.cfg.Insecure || ok && addr.IP.IsLoopback() {
		return nil
	}
	return errNotLoopback(a.Addr())
}

// Close releases what New opened. It is for an App that is never run; Run does it by
// itself.
func (a *App) Close() error {
	if a.ran.Swap(true) {
		return nil
	}
	if a.http != nil {
		a.http.CloseStreams()
	}
	var errs []error
	if a.listener != nil {
		errs = append(errs, a.listener.Close())
	}
	return errors.Join(append(errs, a.backends.close())...)
}

// Addr is where the App listens.
func (a *App) Addr() string { return a.listener.Addr().String() }

// Kept says where the counters are, for the line that `countmill up` prints. It is empty
// if they are not on this machine.
func (a *App) Kept() string {
	if a.backends.disk == nil {
		return ""
	}
	dir, err := filepath.Abs(a.backends.disk.Dir())
	if err != nil {
		dir = a.backends.disk.Dir()
	}
	return " and keeps counters in " + dir
}

// Run serves until ctx ends or a role fails, then stops everything in order within
// Config.ShutdownTimeout. It returns nil if everything that was accepted is safe, and
// otherwise what went wrong: the process must then end with an error.
func (a *App) Run(ctx context.Context) error {
	if a.ran.Swap(true) {
		return errors.New("app: it was run or closed before")
	}
	a.startAggregator(ctx)
	a.startIntake(ctx)
	a.startSweeps(ctx)
	served := make(chan error, 1)
	go func() { served <- a.server.Serve(a.listener) }()
	a.logRunning(ctx)

	if addr, ok := a.listener.Addr().(*net.TCPAddr); a.cfg.Insecure && ok && !addr.IP.IsLoopback() {
		a.log.LogAttrs(ctx, slog.LevelWarn, "anybody who reaches this address may call (--insecure)", slog.String("listen", a.Addr()))
	}

	var cause error
	select {
	case <-ctx.Done():
		a.log.LogAttrs(ctx, slog.LevelInfo, "stopping; a second signal ends the process at once",
			slog.Duration("shutdown_timeout", a.cfg.ShutdownTimeout))
	case <-a.aggregating:
		cause = fmt.Errorf("aggregator ended: %w", a.aggregatorErr)
	case err := <-served:
		cause = fmt.Errorf("serving on %s ended: %w", a.Addr(), err)
		served <- nil
	}
	if cause != nil {
		a.log.LogAttrs(ctx, slog.LevelError, "a role failed, stopping", slog.Any("err", cause))
	}
	err := errors.Join(cause, a.stop())
	<-served
	if err == nil {
		a.log.LogAttrs(ctx, slog.LevelInfo, "stopped")
	}
	return err
}

// startAggregator runs the aggregator on a context of its own. The aggregator must outlive
// the signal, because it commits the increments that the publisher still holds.
func (a *App) startAggregator(ctx context.Context) {
	if a.aggregator == nil {
		return // aggregating is never closed
	}
	ctx, a.stopAggregator = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(a.aggregating)
		a.aggregatorErr = a.aggregator.Run(ctx)
		if a.aggregatorErr != nil {
			// A sender on a bus within the process would wait for an aggregator that has ended.
			a.backends.closeLocalBus()
		}
	}()
}

// logRunning names the backends of the roles, and no backend that they do not have.
func (a *App) logRunning(ctx context.Context) {
	attrs := []slog.Attr{slog.String("roles", a.cfg.Roles.String()), slog.String("listen", a.Addr())}
	if a.backends.bus != nil {
		attrs = append(attrs, slog.String("bus", a.cfg.Bus))
	}
	if a.backends.store != nil {
		attrs = append(attrs, slog.String("store", a.cfg.Store))
	}
	if a.backends.cache != nil {
		attrs = append(attrs, slog.String("cache", a.cfg.Cache))
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "running", attrs...)
}

// startIntake moves the messages that the bus gave up into the dead letters. A message that it
// cannot move stays on the bus.
func (a *App) startIntake(ctx context.Context) {
	ctx, a.stopTaking = context.WithCancel(context.WithoutCancel(ctx))
	if a.intake == nil {
		return
	}
	a.taking.Go(func() {
		if err := a.intake.Run(ctx); err != nil {
			a.log.LogAttrs(ctx, slog.LevelError, "messages that the bus gives up are not taken in any more", slog.Any("err", err))
		}
	})
}
