package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A victim is a countmill that this program starts, kills and starts again on the same
// data.
type victim struct {
	binary, data, listen string
	temporary            bool
	log                  *os.File
	client               *client

	mu     sync.Mutex // held while it is killed and started
	cmd    *exec.Cmd
	exited chan struct{}
	at     []int64            // when to kill it, in increments sent
	kills  int                // so far
	seen   map[string]float64 // metrics of those that were killed, as last seen
}

// newVictim chooses the moments: one at random in each of cfg.kill equal stretches of
// the first nine tenths of the run.
func newVictim(cfg config, increments int64) (*victim, error) {
	v := &victim{binary: cfg.binary, data: cfg.data, seen: make(map[string]float64)}
	if v.data == "" {
		dir, err := os.MkdirTemp("", "identifiers-")
		if err != nil {
			return nil, err
		}
		v.data, v.temporary = filepath.Join(dir, "data"), true
	}
	stretch := increments * 9 / 10 / int64(cfg.kill)
	if stretch < 2*int64(cfg.batch) {
		return nil, fmt.Errorf("%d increments are too few to kill countmill %d times on the way", increments, cfg.kill)
	}
	for i := range int64(cfg.kill) {
		v.at = append(v.at, i*stretch+rand.Int64N(stretch))
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v.listen = free.Addr().String()
	v.client = newClient("http://" + v.listen)
	return v, free.Close()
}

// start starts countmill and waits until it is ready.
func (v *victim) start(ctx context.Context) error {
	if v.log == nil {
		log, err := os.Create(v.data + ".log")
		if err != nil {
			return err
		}
		v.log = log
	}
	v.cmd = exec.Command(v.binary, "up", "--data", v.data, "--listen", v.listen)
	v.cmd.Stdout, v.cmd.Stderr = v.log, v.log
	if err := v.cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	v.exited = exited
	go func(cmd *exec.Cmd) {
		defer close(exited)
		_ = cmd.Wait() // how it ended is in its log; only that it ended matters here
	}(v.cmd)
	return v.ready(ctx)
}

func (v *victim) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := v.client.get(ctx, "/readyz", func(io.Reader) error { return nil })
		if err == nil {
			return nil
		}
		select {
		case <-v.exited:
			return fmt.Errorf("countmill ended by itself: see %s", v.log.Name())
		case <-ctx.Done():
			return fmt.Errorf("countmill is not ready: %w; see %s", err, v.log.Name())
		case <-tick.C:
		}
	}
}

// reached kills and restarts countmill where its time has come. Other workers go on
// sending meanwhile, and find it gone.
func (v *victim) reached(ctx context.Context, sent int64) error {
	if !v.mu.TryLock() {
		return nil
	}
	defer v.mu.Unlock()
	if len(v.at) == 0 || sent < v.at[0] {
		return nil
	}
	v.at = v.at[1:]
	if err := v.remember(ctx); err != nil {
		return err
	}
	select { // so that the kill does not always follow an answer
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(20 * time.Millisecond)):
	}
	if err := v.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill countmill: %w", err)
	}
	<-v.exited
	v.kills++
	return v.start(ctx)
}

// remember adds up the metrics of one that is about to be killed. What it counts
// afterwards is not seen.
func (v *victim) remember(ctx context.Context) error {
	metrics, err := v.client.metrics(ctx, metricNames())
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	for name, n := range metrics {
		v.seen[name] += n
	}
	return nil
}

// survived reports whether it was killed as often as was asked for.
func (v *victim) survived() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.at); n > 0 {
		return fmt.Errorf("%d kills did not happen: the run was too short", n)
	}
	return nil
}

// close stops countmill in the ordinary way. A temporary data directory is removed only
// where all went well.
func (v *victim) close(well bool) {
	if v.cmd != nil && v.cmd.Process != nil {
		err := v.cmd.Process.Signal(syscall.SIGTERM)
		if !errors.Is(err, os.ErrProcessDone) {
			select {
			case <-v.exited:
			case <-time.After(30 * time.Second):
				_ = v.cmd.Process.Kill()
				<-v.exited
			}
		}
	}
	v.client.http.CloseIdleConnections()
	if v.log != nil {
		_ = v.log.Close()
	}
	if v.temporary && well {
		_ = os.RemoveAll(filepath.Dir(v.data))
	}
}
