// Package server starts the servers of the benchmark on loopback and ends them.
package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// ErrMissing means that a server is not installed on this machine.
var ErrMissing = emulator.ErrMissing

// A Spec describes a server to start.
type Spec struct {
	Name string // of the log file
	Path string
	Args []string
	Dir  string   // the working directory, with the log
	Env  []string // in addition to this process's own
	User *User    // nil for the user of this process

	// Ready returns nil when the server answers.
	Ready func(ctx context.Context) error
	// Within is how long it may take to be ready. Default 30s.
	Within time.Duration
	// Signal asks it to end. Default SIGTERM.
	Signal syscall.Signal
}

// A Process is a running server.
type Process struct {
	name   string
	signal syscall.Signal
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	guard  *child.Guard
}

// Start starts a server and waits until it is ready. Call Stop in the end; if this process ends first,
// in any way, a guard kills the server.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p := &Process{name: s.Name, signal: s.Signal, log: filepath.Join(s.Dir, s.Name+".log"), exited: make(chan struct{})}
	if p.signal == 0 {
		p.signal = syscall.SIGTERM
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the server has a descriptor of its own
	p.cmd = exec.Command(s.Path, s.Args...)
	p.cmd.Dir, p.cmd.Env = s.Dir, append(os.Environ(), s.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A group of its own: a key that interrupts this process must not reach the server before its
	// measurement ends or Stop stops it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.User != nil {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: s.User.UID, Gid: s.User.GID}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // its log says how it ended
	}()
	if p.guard, err = newGuard(p.cmd.Process.Pid); err != nil {
		p.Stop()
		return nil, err
	}
	if err := p.ready(ctx, s); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *Process) ready(ctx context.Context, s Spec) error {
	within := s.Within
	if within == 0 {
		within = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended at once: %s", s.Name, p.printed())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", s.Name, err, p.printed())
		case <-tick.C:
		}
	}
}

// printed returns the end of the server's output.
func (p *Process) printed() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// Stop ends the server by a signal, and by force if it still runs after 10 s.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(p.signal)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
	}
	if p.guard != nil {
		p.guard.End()
	}
}

// FreeAddr returns a loopback address that is reserved until this process ends.
func FreeAddr() (addr, number string, err error) {
	kept, err := child.KeepPort()
	if err != nil {
		return "", "", err
	}
	return kept.Addr(), strconv.Itoa(kept.Number()), nil
}

// Dials is a Spec's Ready for a server that is ready as soon as it listens.
func Dials(network, addr string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
