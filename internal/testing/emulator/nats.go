package emulator

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

// A NATSServer is a real nats-server of one test, with JetStream on disk, on a loopback port that stays the same
// when it is restarted.
type NATSServer struct {
	path  string
	dir   string // its configuration, and its streams
	port  *child.Port
	child *serverProcess // nil while it is stopped
}

// natsPath builds the nats-server of tools/nats, or finds it built.
var natsPath = sync.OnceValues(func() (string, error) {
	mod, err := exec.Command("go", "list", "-m", "-f", "{{.GoMod}}", "github.com/countmill/countmill").Output()
	if err != nil {
		return "", fmt.Errorf("%w: no countmill module: %w", ErrMissing, err)
	}
	cmd := exec.Command("go", "tool", "-modfile="+filepath.Join("tools", "nats", "go.mod"), "-n", "nats-server")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %w\n%s", ErrMissing, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
})

func natsProgram(t testing.TB) string {
	t.Helper()
	path, err := natsPath()
	without(t, "nats-server", err)
	return path
}

// NATSConfig fails the test if a server does not accept a whole configuration.
func NATSConfig(t testing.TB, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(natsProgram(t), "-t", "-c", file).CombinedOutput(); err != nil {
		t.Errorf("nats-server -t: %v\n%s", err, out)
	}
}

// NATS starts a server, and ends it with the test. config are further lines of its configuration.
func NATS(t testing.TB, config ...string) *NATSServer {
	t.Helper()
	path := natsProgram(t)
	s := &NATSServer{path: path, dir: t.TempDir()}
	t.Cleanup(func() {
		s.Kill()
		if s.port != nil {
			_ = s.port.Free()
		}
	})
	var err error
	if s.port, err = child.KeepPort(); err != nil {
		t.Fatalf("nats-server: %v", err)
	}
	lines := append([]string{
		"listen: " + s.Addr(),
		// Without "always" a power cut loses up to two minutes of acknowledged messages.
		fmt.Sprintf("jetstream { store_dir: %q, sync_interval: always }", filepath.Join(s.dir, "store")),
	}, config...)
	if err := os.WriteFile(s.config(), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	return s
}

func (s *NATSServer) config() string { return filepath.Join(s.dir, "config") }

// Addr is HOST:PORT.
func (s *NATSServer) Addr() string { return s.port.Addr() }

// Kill kills it, as a crash of its process. It may be dead before.
func (s *NATSServer) Kill() {
	if s.child != nil {
		s.child.stop()
		s.child = nil
	}
}

// Start starts it again, with its streams, after Kill.
func (s *NATSServer) Start(t testing.TB) {
	t.Helper()
	var err error
	if s.child, err = run(s.path, []string{"-c", s.config()}); err == nil {
		err = s.child.ready(s.listens)
	}
	if err != nil {
		t.Fatalf("nats-server: %v", err)
	}
}

// Pause has it keep its connections and answer nothing, until Continue.
func (s *NATSServer) Pause() { _ = s.child.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *NATSServer) Continue() { _ = s.child.cmd.Process.Signal(syscall.SIGCONT) }

// listens reports whether it accepts connections: then it has read its streams.
func (s *NATSServer) listens() bool {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	return err == nil && c.Close() == nil
}
