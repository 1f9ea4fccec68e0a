package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

// A process is a countmill or a memcached. This program starts it, kills it, and starts it again on the
// same address.
type process struct {
	name   string
	path   string
	args   []string
	port   *child.Port // from the first start to the end
	addr   string      // HOST:PORT
	client *remote     // nil if it does not use HTTP
	log    *os.File

	cmd    *exec.Cmd
	exited chan struct{}
	guard  *child.Guard
}

// newCountmill makes a countmill process that runs the role; "up" means all roles.
func newCountmill(cfg config, dir, name, role string, flags ...string) (*process, error) {
	p, err := newProcess(cfg.binary, dir, name)
	if err != nil {
		return nil, err
	}
	p.args = append([]string{role, "--listen", p.addr}, flags...)
	p.client, err = newRemote("http://" + p.addr)
	return p, err
}

func newMemcached(cfg config, dir string) (*process, error) {
	p, err := newProcess(cfg.memcached, dir, "memcached")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(p.addr)
	p.args = []string{"-l", host, "-p", port, "-U", "0", "-u", "nobody"}
	return p, err
}

func newProcess(path, dir, name string) (*process, error) {
	kept, err := child.KeepPort()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	return &process{name: name, path: path, port: kept, addr: kept.Addr(), log: log}, err
}

// start starts the process and waits until it is ready.
func (p *process) start(ctx context.Context) error {
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.exited = exited
	go func(cmd *exec.Cmd) {
		defer close(exited)
		_ = cmd.Wait() // its log says how it ended; here it only matters that it has ended
	}(p.cmd)
	g, err := child.GuardProcess(p.cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("guard of %s: %w", p.name, err)
	}
	p.guard = g
	return p.ready(ctx)
}

func (p *process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended by itself: see %s", p.name, p.log.Name())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; see %s", p.name, err, p.log.Name())
		case <-tick.C:
		}
	}
}

func (p *process) answers(ctx context.Context) error {
	if p.client != nil {
		return p.client.Ready(ctx)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// restart ends the process by SIGKILL and starts it again.
func (p *process) restart(ctx context.Context) error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	p.unguard()
	return p.start(ctx)
}

// stop stops it in the ordinary way.
func (p *process) stop() {
	if p.cmd != nil && p.cmd.Process != nil {
		err := p.cmd.Process.Signal(syscall.SIGTERM)
		if !errors.Is(err, os.ErrProcessDone) {
			select {
			case <-p.exited:
			case <-time.After(30 * time.Second):
				_ = p.cmd.Process.Kill()
				<-p.exited
			}
		}
		p.unguard()
	}
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
	_ = p.log.Close()
	_ = p.port.Free()
}

func (p *process) unguard() {
	if p.guard != nil {
		p.guard.End()
		p.guard = nil
	}
}
