package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/httpserver"
)

// newHTTP makes the HTTP API of the services, and the handler that guards it.
func (a *App) newHTTP() (*api.API, error) {
	s := &surface{router: httpserver.NewRouter(a.log)}
	s.Config = api.Config{Roles: a.cfg.Roles.Names(), Timeout: a.cfg.RequestTimeout, Logger: a.log}
	s.Services = api.Services{Ready: a.ready, Metrics: promhttp.HandlerFor(newRegistry(collect(a.services)), promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})}
	for _, of := range a.services {
		of.Routes(s)
	}
	routes := api.New(s.Services, s.Config)
	s.router.AllowOrigins(a.cfg.CORSOrigins...)
	routes.Register(s.router)
	handler, err := httpserver.GuardPages(s.router, httpserver.PagesConfig{
		Origins: a.cfg.CORSOrigins, OnlyLocal: a.cfg.Tokens == "" && !a.cfg.Insecure, Log: a.log,
	})
	if err != nil {
		return nil, &FlagError{"cors-origin", err}
	}
	a.handler = handler
	return routes, nil
}

// ingest is the way in of increments.
type ingest struct {
	idle
	routes *api.API
	log    *slog.Logger
}

// Stop takes no more requests and finishes those it has. It does not fail. A request may remain,
// such as a body that trickles in; the publisher, which is closed next, refuses it.
func (s ingest) Stop(ctx context.Context) error {
	if left := s.routes.StopIncrements(ctx); left > 0 {
		s.log.LogAttrs(ctx, slog.LevelWarn, "requests for increments were not done in time", slog.Int("requests", left))
	}
	return nil
}

// streams are the watchers, which end with the server.
type streams struct {
	idle
	routes *api.API
}

func (s streams) Stop(context.Context) error {
	s.routes.CloseStreams()
	return nil
}

// serving answers requests on an address.
type serving struct {
	idle
	*httpserver.Server
	listener net.Listener
	cfg      Config
}

// newServing leaves handlers the time that a request may take, after the time that its
// body may take to arrive.
func newServing(ln net.Listener, h http.Handler, cfg Config) *serving {
	const read = 60 * time.Second
	server := httpserver.NewServer(h, httpserver.ServerConfig{
		ReadTimeout:  read,
		WriteTimeout: read + cfg.RequestTimeout + 20*time.Second,
		MaxConns:     cfg.Connections,
		Log:          cfg.Logger,
	})
	return &serving{Server: server, listener: ln, cfg: cfg}
}

func (s *serving) Run(ctx context.Context) error {
	if s.cfg.Insecure && !isLoopback(s.listener.Addr()) {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "anybody who reaches this address may call (--insecure)", slog.String("listen", s.listener.Addr().String()))
	}
	if err := s.Serve(s.listener); err != nil {
		return fmt.Errorf("serving on %s ended: %w", s.listener.Addr(), err)
	}
	return nil
}

// Stop answers reads until here. It does not fail: nothing that was accepted depends on it.
func (s *serving) Stop(ctx context.Context) error {
	if err := s.Shutdown(ctx); err != nil {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "requests were cut", slog.Any("err", err))
	}
	_ = s.listener.Close() // closed already if it was served
	return nil
}

// listen binds the address of the configuration. A name that checkAccess took for this machine may
// lead to an address that others reach: the bound address counts.
func listen(cfg Config) ([]net.Listener, error) {
	ln, err := bind("listen", cfg.Listen)
	if err != nil {
		return nil, err
	}
	if cfg.Tokens == "" && !cfg.Insecure && !isLoopback(ln.Addr()) {
		return nil, errors.Join(errNotLoopback(ln.Addr().String()), ln.Close())
	}
	return []net.Listener{ln}, nil
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// bind listens on the address of a flag.
func bind(flag, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--%s %s: the address is in use; is another countmill running? Choose another with --%s HOST:PORT", flag, addr, flag)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return nil, fmt.Errorf("--%s %s: %w", flag, addr, err)
}
