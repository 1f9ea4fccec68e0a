package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/countmill/countmill/internal/httpserver"
)

const (
	// profileSeconds is how long a CPU profile takes by default, and maxProfileSeconds at most.
	profileSeconds, maxProfileSeconds = 30, 60
	// profileConns is how many connections for profiles are open at once. A guess.
	profileConns = 8
)

// profiling serves profiles of the process as `go tool pprof` reads them, on an address of its own that
// only this machine reaches. Callers need no token: a user of the machine can read the process anyway.
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
	handler, err := httpserver.GuardPages(profileRoutes(), httpserver.PagesConfig{OnlyLocal: true, Log: cfg.Logger})
	if err != nil {
		return nil, err
	}
	server, err := httpserver.NewServer(handler, httpserver.ServerConfig{
		WriteTimeout: 2 * maxProfileSeconds * time.Second, MaxConns: profileConns, Log: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
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
	p.log.LogAttrs(ctx, slog.LevelInfo, "profiles are served", slog.String("url", "http://"+p.listener.Addr().String()+profilePath))
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

const profilePath = "/debug/pprof/"

// profileRoutes has the paths of package net/http/pprof. That package adds them to http.DefaultServeMux
// as well, where a program that embeds countmill may serve them to everybody.
func profileRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+profilePath+"profile", cpuProfile)
	mux.HandleFunc("GET "+profilePath+"{name}", namedProfile)
	return mux
}

// cpuProfile is of the next ?seconds=N. A process makes one at a time.
func cpuProfile(w http.ResponseWriter, r *http.Request) {
	if err := httpserver.LetIn(r, ""); err != nil {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	seconds := profileSeconds
	if text := r.FormValue("seconds"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > maxProfileSeconds {
			http.Error(w, fmt.Sprintf("seconds: must be a whole number from 1 to %d, got %q", maxProfileSeconds, text), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-r.Context().Done():
	}
}

// namedProfile is heap, allocs, goroutine and the like; ?debug=1 or 2 is text for people.
func namedProfile(w http.ResponseWriter, r *http.Request) {
	profile := pprof.Lookup(r.PathValue("name"))
	if profile == nil {
		http.Error(w, "there is no such profile: try heap, allocs, goroutine or profile", http.StatusNotFound)
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug")) // 0: for the tool
	kind := "application/octet-stream"
	if debug > 0 {
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	_ = profile.WriteTo(w, debug) // the caller has gone
}
