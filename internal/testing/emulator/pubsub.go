package emulator

import (
	"os"
	"strconv"
	"syscall"
	"testing"
)

// PubSub returns HOST:PORT of Google's Pub/Sub emulator.
func PubSub(t testing.TB) string {
	t.Helper()
	return pubsub.serve(t)
}

var pubsub = newPubSub()

func newPubSub() *program {
	return &program{
		name:     "the Pub/Sub emulator",
		variable: "COUNTMILL_TEST_PUBSUB_EMULATOR",
		jar:      "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar",
		args: func(jar string, port int) []string {
			return []string{"-Duser.language=en", "-jar", jar, "--host=127.0.0.1", "--port=" + strconv.Itoa(port)}
		},
	}
}

// An Instance is an emulator of one test's own, which the test may maltreat.
type Instance struct {
	// Host is HOST:PORT, the same after a Restart.
	Host string

	t     testing.TB
	child *serverProcess
}

// OwnPubSub starts a Pub/Sub emulator that ends with the test.
func OwnPubSub(t testing.TB) *Instance {
	t.Helper()
	return own(t, newPubSub())
}

func own(t testing.TB, p *program) *Instance {
	t.Helper()
	p.serve(t)
	if p.child == nil {
		t.Skipf("%s names an emulator that somebody else started: it is not paused or restarted", p.variable)
	}
	i := &Instance{Host: p.host, t: t, child: p.child}
	t.Cleanup(func() {
		i.signal(syscall.SIGKILL)
		<-i.child.ended
	})
	return i
}

// Pause stops the emulator where it is; its connections stay open.
func (i *Instance) Pause() { i.signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (i *Instance) Continue() { i.signal(syscall.SIGCONT) }

// Stop ends the emulator.
func (i *Instance) Stop() {
	i.signal(syscall.SIGKILL)
	<-i.child.ended
}

// Restart ends the emulator and starts an empty one on the same port.
func (i *Instance) Restart() {
	i.t.Helper()
	i.Stop()
	c, err := run(i.child.cmd.Path, i.child.cmd.Args[1:])
	if err != nil {
		i.t.Fatal(err)
	}
	children.add(c)
	i.child = c
	if err := c.answers(i.Host); err != nil {
		i.t.Fatalf("restarted emulator: %v", err)
	}
}

func (i *Instance) signal(s os.Signal) { _ = i.child.cmd.Process.Signal(s) }
