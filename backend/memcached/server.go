package memcached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/cespare/xxhash/v2"
)

// A server is one of Config.Servers. It has connections of its own, so that a server that hangs
// takes none away from the others.
type server struct {
	id     string // its name, the input of its rendezvous hash
	hash   uint64 // of id
	client *memcache.Client
	slots  chan struct{} // one slot for each connection
}

func newServer(name string, cfg Config) *server {
	s := &server{id: name, hash: xxhash.Sum64String(name), slots: make(chan struct{}, cfg.MaxIdle)}
	s.client = memcache.NewFromSelector(selector{addr(name)})
	s.client.Timeout, s.client.MaxIdleConns = cfg.Timeout, cfg.MaxIdle
	s.client.DialContext = dial(cfg.Timeout)
	return s
}

// An addr is HOST:PORT. Each new connection resolves it again.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// A selector gives a client its one server.
type selector struct{ addr addr }

// PickServer returns the server.
func (s selector) PickServer(string) (net.Addr, error) { return s.addr, nil }

// Each calls f with the server.
func (s selector) Each(f func(net.Addr) error) error { return f(s.addr) }

// pick returns the server with the highest rendezvous hash for the key. The order of servers does not
// matter.
func pick(servers []*server, key string) *server {
	hash := xxhash.Sum64String(key)
	var best *server
	var most uint64
	for _, s := range servers {
		if score := mix(hash ^ s.hash); best == nil || score > most || score == most && s.id < best.id {
			best, most = s, score
		}
	}
	return best
}

// mix is the last step of MurmurHash3: each input bit changes half of the output bits.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// try runs op. A restarting server closes its connections, and a client notices that only at their next
// use. In that case try drops all idle connections and runs op once more. Every op here may run twice:
// see put, Lock and Unlock.
func try[T any](s *server, op func(*memcache.Client) (T, error)) (T, error) {
	v, err := op(s.client)
	if closed(err) {
		_ = s.client.Close()
		v, err = op(s.client)
	}
	return v, err
}

func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// protocol reports whether err is an answer of the server, such as a miss.
func protocol(err error) bool {
	return errors.Is(err, memcache.ErrCacheMiss) || errors.Is(err, memcache.ErrCASConflict) ||
		errors.Is(err, memcache.ErrNotStored)
}

// exchange runs op on the server and returns at the latest when ctx ends. op then continues in the
// background with its connection, until its time-outs end it. Each server has at most MaxIdle of them.
func exchange[T any](ctx context.Context, c *Cache, s *server, op func(*memcache.Client) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("memcached %s: all %d connections are in use: %w", s.id, cap(s.slots), ctx.Err())
	}
	done := make(chan answer, 1)
	if !c.pool.begin(func() {
		defer func() { <-s.slots }()
		v, err := try(s, op)
		done <- answer{v, err}
	}) {
		<-s.slots
		return none, errClosed
	}
	select {
	case a := <-done:
		if a.err == nil || protocol(a.err) {
			return a.v, a.err
		}
		return a.v, fmt.Errorf("memcached %s: %w", s.id, a.err)
	case <-ctx.Done():
		return none, fmt.Errorf("memcached %s: %w", s.id, ctx.Err())
	}
}
