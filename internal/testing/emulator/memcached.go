package emulator

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

// A MemcachedServer is a real memcached of one test, on a loopback port that stays the
// same when it is restarted.
type MemcachedServer struct {
	path  string
	port  *child.Port
	child *serverProcess // nil while it is stopped
}

// Memcached starts the memcached of the PATH, 64 MiB large, and ends it with the test.
func Memcached(t testing.TB) *MemcachedServer {
	t.Helper()
	s := &MemcachedServer{path: MemcachedPath(t)}
	t.Cleanup(func() {
		s.Stop()
		if s.port != nil {
			_ = s.port.Free()
		}
	})
	var err error
	if s.port, err = child.KeepPort(); err == nil {
		err = s.start()
	}
	if err != nil {
		t.Fatalf("memcached: %v", err)
	}
	return s
}

// MemcachedPath is the memcached of the PATH, for a test that starts it in its own way.
func MemcachedPath(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("memcached")
	if err != nil {
		without(t, "memcached", fmt.Errorf("%w: %w", ErrMissing, err))
	}
	return path
}

// Host is HOST:PORT.
func (s *MemcachedServer) Host() string { return s.port.Addr() }

// Stop kills it. It may be stopped before.
func (s *MemcachedServer) Stop() {
	if s.child != nil {
		s.child.stop()
		s.child = nil
	}
}

// Start starts it again, empty, after Stop.
func (s *MemcachedServer) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatalf("memcached: %v", err)
	}
}

// Pause has it keep its connections and answer nothing, until Resume.
func (s *MemcachedServer) Pause(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(starting); !s.paused(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("memcached: it does not stop")
		}
	}
}

// paused reports whether all threads are stopped. On a busy machine some go on for a
// while after the signal.
func (s *MemcachedServer) paused() bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.child.cmd.Process.Pid))
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil || !strings.Contains(string(stat), ") T ") {
			return false
		}
	}
	return len(tasks) > 0 || s.version(time.Second) != nil // where there is no /proc
}

// Resume ends a Pause.
func (s *MemcachedServer) Resume(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *MemcachedServer) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.child.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("memcached: %v", err)
	}
}

func (s *MemcachedServer) start() (err error) {
	s.child, err = run(s.path, []string{"-l", "127.0.0.1", "-p", strconv.Itoa(s.port.Number()), "-U", "0", "-m", "64", "-u", "nobody"})
	if err != nil {
		return err
	}
	if err = s.child.ready(func() bool { return s.version(10*time.Second) == nil }); err != nil {
		s.Stop()
	}
	return err
}

func (s *MemcachedServer) version(timeout time.Duration) error {
	c, err := net.DialTimeout("tcp", s.Host(), timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("version\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "VERSION ") {
		err = fmt.Errorf("answered %q", line)
	}
	return err
}
