//go:build unix

package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/systemd"
)

// A supervisorSocket is a supervisor as a test sees it.
type supervisorSocket struct {
	*net.UnixConn
	*systemd.Supervisor
}

func superviseWith(t *testing.T, watchdog time.Duration) supervisorSocket {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	s, err := systemd.FromEnv(func(name string) (string, bool) {
		env := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": strconv.FormatInt(watchdog.Microseconds(), 10)}
		if watchdog == 0 {
			delete(env, "WATCHDOG_USEC")
		}
		return env[name], env[name] != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return supervisorSocket{socket, s}
}

// next is the next message, or "" if none comes in time.
func (s supervisorSocket) next(within time.Duration) string {
	_ = s.SetReadDeadline(time.Now().Add(within))
	message := make([]byte, 100)
	n, _ := s.Read(message)
	return string(message[:n])
}

// A supervisor gets READY once, signs of life, and STOPPING last.
func TestSupervisorIsInformed(t *testing.T) {
	t.Parallel()
	for _, watchdog := range []time.Duration{0, 300 * time.Millisecond} {
		s := superviseWith(t, watchdog)
		r := startWith(t, Config{Supervisor: s.Supervisor})
		got := []string{s.next(patience)}
		for got[len(got)-1] == systemd.Alive && len(got) < 1000 { // before the aggregator is ready
			got = append(got, s.next(patience))
		}
		answer, err := r.client.Get(r.url + "/readyz")
		if err != nil || answer.StatusCode != http.StatusOK || got[len(got)-1] != systemd.Ready {
			t.Fatalf("got %q with /readyz %v, %v", got, answer, err)
		}
		_ = answer.Body.Close()
		if watchdog > 0 {
			for range 3 {
				if m := s.next(patience); m != systemd.Alive {
					t.Errorf("got %q after READY, want %q", m, systemd.Alive)
				}
			}
		}
		r.stop(t)
		last := s.next(patience)
		for last == systemd.Alive { // before the stop
			last = s.next(patience)
		}
		if last != systemd.Stopping {
			t.Errorf("got %q after the stop, want %q", last, systemd.Stopping)
		}
		if m := s.next(10 * time.Millisecond); m != "" {
			t.Errorf("got %q after %q", m, systemd.Stopping)
		}
	}
}

// A process that is not ready is alive and not READY. One whose roles hang is neither.
func TestSupervisorOfTheUnready(t *testing.T) {
	t.Parallel()
	var state atomic.Pointer[string]
	set := func(s string) { state.Store(&s) }
	set("unready")
	s := superviseWith(t, 90*time.Millisecond)
	cfg := Config{}.withDefaults()
	service := &supervised{Supervisor: s.Supervisor, log: cfg.Logger, ready: func(ctx context.Context) (string, error) {
		switch *state.Load() {
		case "unready":
			return "", errors.New("not ready")
		case "hangs":
			<-t.Context().Done()
		}
		return "degraded", nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = service.Run(ctx) }()
	var got []string
	for range 5 {
		got = append(got, s.next(patience))
	}
	if slices.ContainsFunc(got, func(m string) bool { return m != systemd.Alive }) {
		t.Errorf("not ready: got %q, want only %q", got, systemd.Alive)
	}
	set("degraded")
	for m := s.next(patience); m != systemd.Ready; m = s.next(patience) {
		if m != systemd.Alive {
			t.Fatalf("got %q before %q", m, systemd.Ready)
		}
	}
	set("hangs")
	for n := 0; s.next(500*time.Millisecond) != ""; n++ {
		if n > 200 { // some came before, and were not read yet
			t.Fatal("signs of life although the roles hang")
		}
	}
}
