package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// An App is services that start and stop together. Run it once, or Close it.
type App struct {
	cfg      Config
	log      *slog.Logger
	services []named // in the order of the stop (stop.go)
	addr     string  // empty without a listener
	kept     string
	handler  http.Handler // guards the router

	stopping atomic.Bool
	ran      atomic.Bool
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

// Embed is New without a listener: Handler answers requests, and Config.Listen is not used.
func Embed(cfg Config) (*App, error) {
	cfg.Listen = DefaultListen // which Check takes
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return build(cfg, func(Config) ([]net.Listener, error) { return nil, nil }, openBackends)
}

// newApp lets tests bring backends that fail or are shared.
func newApp(cfg Config, open func(Config) (*backends, error)) (*App, error) {
	return build(cfg, listen, open)
}

func build(cfg Config, listen func(Config) ([]net.Listener, error), open func(Config) (*backends, error)) (*App, error) {
	cfg = cfg.withDefaults().Resolved()
	guards, err := guards(cfg)
	if err != nil {
		return nil, err
	}
	listeners, err := listen(cfg)
	if err != nil {
		return nil, err
	}
	b, err := open(cfg)
	if err == nil {
		a := &App{cfg: cfg, log: cfg.Logger}
		if err = a.assemble(b, guards, listeners); err == nil {
			return a, nil
		}
		err = errors.Join(err, b.close())
	}
	for _, ln := range listeners {
		err = errors.Join(err, ln.Close())
	}
	return nil, err
}

// assemble makes the services on the backends and listeners that are open.
func (a *App) assemble(b *backends, guards []*guarding, listeners []net.Listener) error {
	if err := setWindow(a.cfg, b.store); err != nil {
		return err
	}
	disks, err := disks(a.cfg, b)
	if err != nil {
		return err
	}
	roles, err := makeRoles(a.cfg, b, disks)
	if err != nil {
		return err
	}
	a.services = roles
	for _, d := range disks {
		a.kept = d.kept()
		a.services = append(a.services, named{"store", d})
	}
	for _, g := range guards {
		g.watching = b.task()
		a.services = append(a.services, named{"tokens", g})
	}
	a.services = append(a.services, sweeps(a.cfg, b)...)
	routes, err := a.newHTTP()
	if err != nil {
		return err
	}
	a.services = append([]named{{"ingest", ingest{routes: routes, log: a.log}}}, a.services...)
	a.services = append(a.services, named{"streams", streams{routes: routes}})
	for _, ln := range listeners {
		a.addr = ln.Addr().String()
		a.services = append(a.services, named{"server", newServing(ln, a.handler, a.cfg)})
	}
	profiles, err := profiles(a.cfg) // last: nothing else would close its listener
	if err != nil {
		return err
	}
	a.services = append(a.services, profiles...)
	a.services = append(a.services, named{"backends", closing{backends: b}})
	a.services = append(supervisors(a), a.services...)
	return nil
}

// Close releases what New opened. It is for an App that is never run; Run does it by
// itself.
func (a *App) Close() error {
	if a.ran.Swap(true) {
		return nil
	}
	return a.stop()
}

// Addr is where the App listens; empty if it does not.
func (a *App) Addr() string { return a.addr }

// Kept says where the counters are, for the line that `countmill up` prints. It is empty
// if they are not on this machine.
func (a *App) Kept() string { return a.kept }

// Handler answers requests as the listener does, from Run until its end. If anybody may call, that
// is anybody on this machine.
func (a *App) Handler() http.Handler {
	h := a.handler
	if a.cfg.Tokens == "" && !a.cfg.Insecure {
		h = httpserver.OnlyThisMachine(h, a.log)
	}
	return httpserver.Recover(h, a.log)
}

// Roles are the roles of an App that runs all of them.
func (a *App) Roles() (p *publisher.Publisher, agg *aggregator.Aggregator, r *reader.Reader) {
	for _, of := range a.services {
		switch s := of.service.(type) {
		case *publishing:
			p = s.Publisher
		case *aggregating:
			agg = s.Aggregator
		case *reading:
			r = s.Reader
		}
	}
	return p, agg, r
}

// Collector has the metrics of the services, without those of the process.
func (a *App) Collector() prometheus.Collector { return together(collect(a.services)) }

// Run serves until ctx ends or a service fails, then stops everything in order within
// Config.ShutdownTimeout. It returns nil if everything that was accepted is safe, and
// otherwise what went wrong: the process must then end with an error.
func (a *App) Run(ctx context.Context) error {
	if a.ran.Swap(true) {
		return errors.New("app: it was run or closed before")
	}
	runs := startAll(ctx, a.services)
	a.logRunning(ctx)
	cause := runs.first(ctx)
	timeout := slog.Duration("shutdown_timeout", a.cfg.ShutdownTimeout)
	switch {
	case cause != nil:
		a.log.LogAttrs(ctx, slog.LevelError, "a role failed, stopping", slog.Any("err", cause))
	case a.addr == "": // within a program, which has the signals
		a.log.LogAttrs(ctx, slog.LevelInfo, "stopping", timeout)
	default:
		a.log.LogAttrs(ctx, slog.LevelInfo, "stopping; a second signal ends the process at once", timeout)
	}
	err := errors.Join(cause, a.stop())
	err = errors.Join(err, runs.rest(err == nil))
	if err == nil {
		a.log.LogAttrs(ctx, slog.LevelInfo, "stopped")
	}
	return err
}

// logRunning names the backends of the roles, and no backend that they do not have.
func (a *App) logRunning(ctx context.Context) {
	attrs := []slog.Attr{slog.String("roles", a.cfg.Roles.String())}
	for _, of := range []struct {
		has         bool
		name, value string
	}{
		{a.addr != "", "listen", a.addr},
		{a.cfg.Roles.Has(needBus), "bus", a.cfg.Bus},
		{a.cfg.Roles.Has(needStore), "store", backend.Shown(a.cfg.Store)},
		{a.cfg.Roles.Has(needCache), "cache", a.cfg.Cache},
	} {
		if of.has {
			attrs = append(attrs, slog.String(of.name, of.value))
		}
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "running", attrs...)
}
