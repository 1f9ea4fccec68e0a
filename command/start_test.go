package command

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// SIGTERM ends a process that waits for a server while it starts: within 2 s on a machine
// that has nothing else to do, and long before the server would be given up.
func TestSIGTERMEndsAStart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs the command")
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		variable string
		args     []string
	}{
		"reader":     {"DATASTORE_EMULATOR_HOST", []string{"reader", "--store", "datastore://p"}},
		"publisher":  {"PUBSUB_EMULATOR_HOST", []string{"publisher", "--bus", "pubsub://p/topic"}},
		"aggregator": {"DATASTORE_EMULATOR_HOST", []string{"aggregator", "--bus", "pubsub://p/topic?subscription=sub", "--store", "datastore://p"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent, err := net.Listen("tcp", "127.0.0.1:0") // a server that never answers
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			var said bytes.Buffer
			cmd := exec.Command(binary, append(tc.args, "--listen", "127.0.0.1:0")...)
			cmd.Env = append(os.Environ(), tc.variable+"="+silent.Addr().String())
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			_ = silent.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
			conn, err := silent.Accept()
			if err != nil {
				t.Fatalf("it asked no server: %v", err)
			}
			defer conn.Close()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			began, exited := time.Now(), make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			select {
			case err := <-exited:
				took := time.Since(began)
				t.Logf("ended %s after SIGTERM", took)
				if err != nil || took > 8*time.Second {
					t.Errorf("ended %s after SIGTERM with %v, want exit 0 at once:\n%s", took, err, said.String())
				}
			case <-time.After(patience):
				t.Error("it goes on after SIGTERM")
			}
		})
	}
}
