package app

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/pebble"
)

// A start that is stopped does not wait for its backends, and closes them if they open after
// all.
func TestStartStops(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	opening, release := make(chan struct{}), make(chan struct{})
	slow := func(cfg Config) (*backends, error) {
		close(opening)
		<-release
		return openBackends(cfg)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := ln.Addr().String()
	must(t, ln.Close())
	cfg := Config{Listen: addr, Store: "pebble:" + escapeDir(dir)}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		a, err := startApp(ctx, cfg, slow)
		if a != nil {
			err = errors.Join(errors.New("it returned an App"), a.Close())
		}
		started <- err
	}()
	<-opening
	cancel()
	select {
	case err := <-started:
		if !errors.Is(err, ErrStopped) {
			t.Errorf("got %v, want ErrStopped", err)
		}
	case <-time.After(patience):
		t.Fatal("the start waits for what it opens")
	}
	close(release)
	for deadline := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		s, err := pebble.Open(pebble.Config{Dir: dir}) // it is in use until it is closed
		if err == nil {
			must(t, s.Close())
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("what was opened is not closed: %v", err)
		}
	}
}

// A start that is done is returned, and a context that ended before is noticed.
func TestStart(t *testing.T) {
	t.Parallel()
	cfg := Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir())}
	a, err := Start(t.Context(), cfg)
	must(t, err)
	run(t, a).stop(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a, err := startApp(ctx, cfg, func(Config) (*backends, error) { return nil, errors.New("no server") }); a != nil || err == nil {
		t.Errorf("got %v, %v, want no App", a, err)
	}
	if _, err := Start(t.Context(), Config{Listen: "nowhere"}); !errors.Is(err, ErrUsage) {
		t.Errorf("got %v, want ErrUsage", err)
	}
}
