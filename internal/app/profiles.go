package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/countmill/countmill/internal/httpserver"
)

// profiling serves Config.Profiles on an address of its own that only this machine reaches. Callers need no token: a user of the machine can read the process anyway.
type profiling struct {
	idle
	*httpserver.Server
	listener net.Listener
	log      *slog.Logger
}

// profiles is empty unless the configuration asks for profiles. Its listener is open: Stop closes it.
func profiles(cfg Config) ([]named, error) {
	if cfg.Pprof == "" {
		return nil, nil
	}
	handler, err := httpserver.GuardPages(cfg.Profiles, httpserver.PagesConfig{OnlyLocal: true, Log: cfg.Logger})
	if err != nil {
		return nil, err
	}
	server := httpserver.NewServer(handler, httpserver.ServerConfig{
		WriteTimeout: 2 * time.Minute, MaxConns: 8, Log: cfg.Logger, // the most time of a CPU profile, and a guess
	})
	ln, err := bind("pprof", cfg.Pprof)
	if err != nil {
		return nil, err
	}
	if !isLoopback(ln.Addr()) { // a name may lead anywhere
		return nil, errors.Join(errNotHere(ln.Addr().String()), ln.Close())
	}
	return []named{{"pprof", &profiling{Server: server, listener: ln, log: cfg.Logger}}}, nil
}

func errNotHere(addr string) error {
	return Usagef("--pprof %s: other machines could reach it: give an address of this machine, such as 127.0.0.1:6060", addr)
}

func (p *profiling) Run(ctx context.Context) error {
	p.log.LogAttrs(ctx, slog.LevelInfo, "profiles are served", slog.String("url", "http://"+p.listener.Addr().String()+"/debug/pprof/"))
	if err := p.Serve(p.listener); err != nil {
		return fmt.Errorf("serving profiles on %s ended: %w", p.listener.Addr(), err)
	}
	return nil
}

// Stop cuts the profiles that are being made.
func (p *profiling) Stop(context.Context) error {
	err := p.Close()
	_ = p.listener.Close() // closed already if it was served
	return err
}
