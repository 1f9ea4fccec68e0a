package memcached

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// suspicious is how old addresses may get after a server failed.
	suspicious = time.Second

	// resolving bounds the look-up of all names.
	resolving = 5 * time.Second
)

var errClosed = errors.New("memcached: the cache is closed")

// A pool has the servers of all names. It resolves the names again and again, and waits for background
// work when it closes.
type pool struct {
	cfg    Config
	ctx    context.Context // ends when the pool is closed
	cancel context.CancelFunc

	mu       sync.Mutex
	running  sync.WaitGroup
	closed   bool
	all      []*server     // replaced, never changed; nil until the first look-up
	resolved time.Time     // when the last look-up ended
	doubtful bool          // a server has failed since then
	looking  chan struct{} // closed when the running look-up ends; nil if none runs

	hosts []host // used by the look-up only, which runs once at a time
}

// A host is one of Config.Servers.
type host struct {
	name, host, port string
	addrs            []string // from the last successful look-up
	failed           bool     // the last look-up failed
}

func newPool(cfg Config) *pool {
	p := &pool{cfg: cfg}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, name := range cfg.Servers {
		h, port, _ := net.SplitHostPort(name) // the configuration was validated
		p.hosts = append(p.hosts, host{name: name, host: h, port: port})
	}
	return p
}

// begin runs f in the background, unless the pool is closed. close waits for f.
func (p *pool) begin(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Go(f)
	return true
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
	for _, s := range p.all {
		_ = s.client.Close() // closing idle connections loses nothing
	}
}

// suspect makes the next look-up come soon: a server that failed may have moved.
func (p *pool) suspect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubtful = true
}

// servers returns the servers, at least one. The first calls wait for the first look-up. Later calls
// use the known servers while a look-up runs.
func (p *pool) servers(ctx context.Context) ([]*server, error) {
	for {
		all, looking, err := p.look()
		if err != nil || all != nil {
			return all, err
		}
		select {
		case <-looking:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look begins a look-up if one is due.
func (p *pool) look() ([]*server, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, errClosed
	}
	age := time.Since(p.resolved)
	if p.looking == nil && (p.all == nil || age >= p.cfg.ResolveEvery || p.doubtful && age >= suspicious) {
		p.looking = make(chan struct{})
		p.running.Go(p.resolve)
	}
	return p.all, p.looking, nil
}

// resolve looks all names up and replaces the servers.
func (p *pool) resolve() {
	ctx, cancel := context.WithTimeout(p.ctx, resolving)
	defer cancel()
	var names sync.WaitGroup
	errs := make([]error, len(p.hosts))
	for i := range p.hosts {
		names.Go(func() { errs[i] = p.hosts[i].lookUp(ctx, p.cfg) })
	}
	names.Wait()

	p.mu.Lock()
	old := p.all
	p.mu.Unlock()
	all := p.serversOf(old, errs)

	p.mu.Lock()
	p.all, p.resolved, p.doubtful = all, time.Now(), errors.Join(errs...) != nil
	close(p.looking)
	p.looking = nil
	p.mu.Unlock()
	for _, s := range old {
		if !slices.Contains(all, s) {
			s.leave()
		}
	}
}

// serversOf makes servers of the addresses. It keeps servers whose address stays.
func (p *pool) serversOf(old []*server, errs []error) []*server {
	var all []*server
	add := func(id, address string, err error) {
		i := slices.IndexFunc(old, func(s *server) bool { return s.id == id && string(s.addr) == address && address != "" })
		if i >= 0 {
			all = append(all, old[i])
			return
		}
		all = append(all, newServer(id, address, err, p.cfg))
	}
	for i, h := range p.hosts {
		switch len(h.addrs) {
		case 0:
			add(h.name, "", fmt.Errorf("memcached %s: %w", h.name, errs[i]))
		case 1:
			// The id is the name, so that its counters stay with it when its address changes.
			add(h.name, net.JoinHostPort(h.addrs[0], h.port), nil)
		default:
			for _, a := range h.addrs {
				add(h.name+" "+a, net.JoinHostPort(a, h.port), nil)
			}
		}
	}
	return all
}

// lookUp replaces the addresses. If the name does not resolve they stay, because a failing name service
// should not take working servers away.
func (h *host) lookUp(ctx context.Context, cfg Config) error {
	addrs, err := cfg.Resolver.LookupHost(ctx, h.host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: h.host}
	}
	if err != nil {
		if !h.failed && !errors.Is(err, context.Canceled) {
			cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "memcached server name does not resolve, will retry",
				slog.String("server", h.name), slog.Any("kept", h.addrs), slog.Any("err", err))
		}
		h.failed = true
		return err
	}
	addrs = oneFamily(addrs)
	if h.failed || h.addrs != nil && !slices.Equal(h.addrs, addrs) {
		cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "memcached server name resolves again",
			slog.String("server", h.name), slog.Any("before", h.addrs), slog.Any("addrs", addrs))
	}
	h.failed, h.addrs = false, addrs
	return nil
}

// oneFamily returns the IPv4 addresses if there are any, otherwise all, sorted. With both families one
// server would count as two.
func oneFamily(addrs []string) []string {
	addrs = slices.Clone(addrs)
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	isV6 := func(a string) bool { return strings.Contains(a, ":") }
	if slices.ContainsFunc(addrs, func(a string) bool { return !isV6(a) }) {
		addrs = slices.DeleteFunc(addrs, isV6)
	}
	return addrs
}
