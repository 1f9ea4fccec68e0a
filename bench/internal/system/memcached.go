package system

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
)

const memcachedConns = 50

func memcachedSystems() []System {
	return []System{{
		Name: "memcached/incr", Ack: "in the server's memory, nowhere else: gone with the process or by eviction; a repeat counts twice", Loads: names,
		How:    fmt.Sprintf("memcached -m 1024 on a unix socket; gomemcache, incr, %d connections, one at a time; counters set to 0 before the clock starts", memcachedConns),
		Family: "memcached/incr", Against: "redis/pipelined",
		Version: func() (string, error) {
			path, err := server.Find("memcached")
			if err != nil {
				return "", err
			}
			return server.Says(path, "-V")
		},
		Open: func(ctx context.Context, at Place) (Instance, error) {
			m := &memcached{}
			return opened(m, m.open(ctx, at))
		},
	}}
}

type memcached struct {
	closers
	client *memcache.Client
}

func (m *memcached) open(ctx context.Context, at Place) error {
	path, err := server.Find("memcached")
	if err != nil {
		return err
	}
	socket := filepath.Join(at.Dir, "memcached.sock")
	args := []string{"-s", socket, "-m", "1024"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root")
	}
	p, err := server.Start(ctx, server.Spec{Name: "memcached", Path: path, Dir: at.Dir, Args: args, Ready: server.Dials("unix", socket)})
	if err != nil {
		return err
	}
	m.add(p.Stop)
	m.client = memcache.New(socket)
	m.client.MaxIdleConns = memcachedConns
	m.client.Timeout = 30 * time.Second
	m.add(func() { _ = m.client.Close() })
	return zero(ctx, socket, at.Load.Names)
}

// zero makes the counters, because incr does not.
func zero(ctx context.Context, socket string, names []string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	out := bufio.NewWriter(conn)
	for _, name := range names {
		fmt.Fprintf(out, "set %s 0 0 1 noreply\r\n0\r\n", name)
	}
	fmt.Fprint(out, "version\r\n") // answered when everything before it is done
	if err := out.Flush(); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "VERSION ") {
		err = fmt.Errorf("memcached answered %q", line)
	}
	return err
}

// Count sends one incr after another.
func (m *memcached) Count(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	return r.Walk(ctx, memcachedConns, 1, func(_ context.Context, _, _ int, order []uint32) error {
		_, err := m.client.Increment(r.Names[order[0]], 1)
		return err
	})
}

// Check reads every counter. An evicted counter is an error.
func (m *memcached) Check(ctx context.Context, r *load.Run) error {
	return r.Check(ctx, func(_ context.Context, names []string) ([]int64, error) {
		items, err := m.client.GetMulti(names)
		if err != nil {
			return nil, err
		}
		got := make([]int64, len(names))
		for i, name := range names {
			if items[name] == nil {
				return nil, errors.New("a counter is gone: memcached had too little memory")
			}
			if got[i], err = strconv.ParseInt(strings.TrimSpace(string(items[name].Value)), 10, 64); err != nil {
				return nil, err
			}
		}
		return got, nil
	})
}
