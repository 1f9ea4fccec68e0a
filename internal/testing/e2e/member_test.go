package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A member is a role that is started again whenever its process has ended, as a supervisor does.
type member struct {
	role  string
	env   []string
	flags []string

	stopped chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	process *process // the last one started
	killed  bool     // whether the test killed it
	ends    []string // last output of processes that listened and then ended by themselves
	early   []string // last output of processes that ended by themselves before they listened
}

// as makes a member of a process that nobody starts again.
func (p *process) as() []*member { return []*member{{role: p.role, process: p}} }

// keep starts the role and keeps it running until the test ends.
func keep(t *testing.T, env []string, role string, flags ...string) *member {
	t.Helper()
	m := &member{role: role, env: env, flags: flags, stopped: make(chan struct{})}
	p, err := m.start()
	if err != nil {
		t.Fatal(err)
	}
	m.running.Go(func() { m.supervise(p) })
	t.Cleanup(func() {
		m.stop()
		if t.Failed() {
			t.Logf("log of the %s at %s:\n%s", role, m.current().url, m.current().log)
		}
	})
	return m
}

func (m *member) start() (*process, error) {
	p, err := spawn(m.env, m.role, m.flags...)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process, m.killed = p, false
	return p, nil
}

func (m *member) supervise(p *process) {
	for {
		<-p.exited
		p.kill() // ends its guard
		select {
		case <-m.stopped:
			return
		default:
		}
		if !m.ended(p) {
			<-time.After(100 * time.Millisecond)
		}
		var err error
		if p, err = m.start(); err != nil {
			m.mu.Lock()
			m.ends = append(m.ends, err.Error())
			m.mu.Unlock()
			return
		}
	}
}

// ended records how the process ended, and reports whether the test killed it.
func (m *member) ended(p *process) (killed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.killed {
		return true
	}
	said := fmt.Sprintf("%s: %v\n%s", m.role, p.err, p.log)
	select {
	case <-p.listening:
		m.ends = append(m.ends, said)
	default:
		m.early = append(m.early, said)
	}
	return false
}

// stop ends the member. A second call does nothing.
func (m *member) stop() {
	select {
	case <-m.stopped:
	default:
		close(m.stopped)
	}
	m.current().kill()
	m.running.Wait()
	m.current().kill() // a process that was started in the meantime
}

func (m *member) current() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// kill ends the process by SIGKILL, even while it starts.
func (m *member) kill() {
	m.mu.Lock()
	m.killed = true
	p := m.process
	m.mu.Unlock()
	p.kill()
}

// pause suspends the process until the returned function is called. It may have ended by then.
func (m *member) pause() (resume func()) {
	p := m.current()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	return func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
}

// up returns the process, or nil while it starts.
func (m *member) up() *process {
	p := m.current()
	select {
	case <-p.listening:
		return p
	default:
		return nil
	}
}

func (m *member) ready() bool {
	p := m.up()
	return p != nil && p.status() == http.StatusOK
}

// oneOf returns the process of a random member, or nil if that one has none.
func oneOf(r *rand.Rand, members []*member) *process { return members[r.IntN(len(members))].up() }
