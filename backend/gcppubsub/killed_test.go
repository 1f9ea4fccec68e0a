package gcppubsub_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/wire"
)

const (
	childHost    = "COUNTMILL_PUBSUB_CHILD_HOST"
	childProject = "COUNTMILL_PUBSUB_CHILD_PROJECT"
)

// TestChild is the process that TestKilled kills. It holds a message until then.
func TestChild(t *testing.T) {
	if os.Getenv(childHost) == "" {
		t.Skip("not the other process")
	}
	bus := open(t, os.Getenv(childHost), project(os.Getenv(childProject)))
	messages := subscribe(t, bus)
	m := receive(t, messages, 20*time.Second)
	_, _ = os.Stdout.WriteString("\nheld " + m.Metadata.Get(wire.MetaBrokerID) + "\n")
	<-t.Context().Done()
}

// TestKilled: when a process was killed, another one gets its messages after their lease. By then the emulator has noticed that the stream is dead.
func TestKilled(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits for a lease")
	host, id := emulator.PubSub(t), emulator.Project()
	bus := open(t, host, project(id))
	publish(t, bus, "x", nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), exe, "-test.run", "^TestChild$", "-test.v", "-test.timeout", "5m")
	child.Env = append(os.Environ(), childHost+"="+host, childProject+"="+id)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	held := ""
	for lines := bufio.NewScanner(out); held == "" && lines.Scan(); {
		held, _ = strings.CutPrefix(lines.Text(), "held ")
		if held == lines.Text() {
			held = ""
		}
	}
	<-time.After(6 * time.Second) // the lease has been extended before the process dies
	begin := time.Now()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	m := receive(t, subscribe(t, bus), 40*time.Second)
	m.Ack()
	if got := m.Metadata.Get(wire.MetaBrokerID); got != held {
		t.Errorf("got message %q, the other process held %q", got, held)
	}
	t.Logf("came again %s after the other process was killed", time.Since(begin).Round(time.Millisecond))
}
