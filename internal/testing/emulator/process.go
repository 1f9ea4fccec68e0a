package emulator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

// starting is how long an emulator may take to answer.
const starting = 2 * time.Minute

// heap bounds the memory of each emulator, all of whose data is in there.
func heap() string { return "-Xmx" + cmp.Or(os.Getenv("COUNTMILL_TEST_EMULATOR_HEAP"), "512m") }

// A program is an emulator that this package can find and start.
type program struct {
	name     string // for people: "the Firestore emulator"
	variable string // HOST:PORT of a running one, or the path of its jar
	jar      string // pattern of the jar below the SDK's root
	// args are Java's arguments for a server on 127.0.0.1:port.
	args func(jar string, port int) []string

	once  sync.Once
	host  string
	err   error
	child *serverProcess
}

// ErrMissing means that this machine has no emulator. A broken emulator is another error.
var ErrMissing = errors.New("not on this machine")

// errOff means that a variable turns off the tests of this emulator, also required ones.
var errOff = errors.New("turned off")

// serve returns HOST:PORT of the emulator and starts it where no test has yet.
func (p *program) serve(t testing.TB) string {
	t.Helper()
	p.once.Do(func() {
		if p.err = p.start(); p.err == nil && p.child != nil {
			children.add(p.child)
		}
	})
	without(t, p.name, p.err)
	return p.host
}

// without ends a test that lacks a server.
func without(t testing.TB, name string, err error) {
	t.Helper()
	switch {
	case errors.Is(err, errOff), errors.Is(err, ErrMissing) && !required():
		t.Skipf("%s is %v", name, err)
	case err != nil:
		t.Fatalf("%s: %v", name, err)
	}
}

func required() bool {
	return slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "emulators")
}

func (p *program) start() error {
	jar := os.Getenv(p.variable)
	if jar == "off" {
		return fmt.Errorf("%w by %s", errOff, p.variable)
	}
	if _, _, err := net.SplitHostPort(jar); err == nil {
		p.host = jar
		return nil
	}
	if jar == "" {
		var err error
		if jar, err = Jar(p.jar); err != nil {
			return fmt.Errorf("%s is not set: %w", p.variable, err)
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	kept, err := child.KeepPort() // until this process ends: it may be started there again
	if err != nil {
		return err
	}
	if p.child, err = run(java, append([]string{heap()}, p.args(jar, kept.Number())...)); err != nil {
		return err
	}
	p.host = kept.Addr()
	if err = p.child.answers(p.host); err != nil {
		p.child.stop()
		p.child = nil
		return fmt.Errorf("started from %s: %w", jar, err)
	}
	return nil
}

// Jar finds a file by a pattern below the root of the Google Cloud SDK. The error matches [ErrMissing] if there is none.
func Jar(pattern string) (string, error) {
	root, err := sdk()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMissing, err)
	}
	pattern = filepath.Join(root, filepath.FromSlash(pattern))
	jars, err := filepath.Glob(pattern)
	if err != nil || len(jars) == 0 {
		return "", fmt.Errorf("%w: there is no %s", ErrMissing, pattern)
	}
	return jars[0], nil
}

// sdk is the root of the Google Cloud SDK.
var sdk = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "gcloud", "info", "--format=value(installation.sdk_root)").Output()
	if err != nil {
		return "", fmt.Errorf("gcloud does not name its root: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// A serverProcess is a running server.
type serverProcess struct {
	cmd   *exec.Cmd
	dir   string        // where it may write
	log   *os.File      // its output
	ended chan struct{} // closed when it has ended
	guard *child.Guard
	// signal ends it in good order. 0 if none is needed.
	signal syscall.Signal
}

// run starts a program, and beside it a guard that kills it when this process has ended in
// any way: a panic, a test time-out and SIGKILL run no cleanup.
func run(path string, args []string) (*serverProcess, error) {
	dir, err := os.MkdirTemp("", "countmill-emulator-")
	if err != nil {
		return nil, err
	}
	return runIn(dir, exec.Command(path, args...))
}

// runIn is run with a directory, which it removes at the end.
func runIn(dir string, cmd *exec.Cmd) (*serverProcess, error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &serverProcess{cmd: cmd, dir: dir, log: log, ended: make(chan struct{})}
	c.cmd.Dir = dir // the Datastore emulator leaves files in its working directory
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close(), os.RemoveAll(dir))
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	if c.guard, err = child.GuardProcess(c.cmd.Process.Pid, dir); err != nil {
		c.stop()
		return nil, fmt.Errorf("guard of the emulator: %w", err)
	}
	return c, nil
}

// answers waits until the emulator answers HTTP on host.
func (c *serverProcess) answers(host string) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return c.ready(func() bool {
		resp, err := client.Get("http://" + host + "/")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// ready waits until the program is ready.
func (c *serverProcess) ready(is func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(starting)
	for {
		select {
		case <-tick.C:
			if is() {
				return nil
			}
		case <-c.ended:
			return fmt.Errorf("ended at once:\n%s", c.printed())
		case <-deadline:
			return fmt.Errorf("not ready within %s:\n%s", starting, c.printed())
		}
	}
}

// printed is the end of the emulator's output.
func (c *serverProcess) printed() string {
	size, err := c.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	buf := make([]byte, min(size, 4<<10))
	n, _ := c.log.ReadAt(buf, size-int64(len(buf)))
	return string(buf[:n])
}

// stop ends the emulator and its guard, and waits for both.
func (c *serverProcess) stop() {
	if c.guard != nil { // first: it must not outlive the process whose number it knows
		c.guard.End()
	}
	if c.signal != 0 && c.cmd.Process.Signal(c.signal) == nil {
		select {
		case <-c.ended:
		case <-time.After(10 * time.Second):
		}
	}
	_ = c.cmd.Process.Kill() // does nothing when it has ended
	<-c.ended
	_ = c.log.Close()
	_ = os.RemoveAll(c.dir)
}

var children running

type running struct {
	mu  sync.Mutex
	all []interface{ stop() }
}

func (r *running) add(c interface{ stop() }) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, c)
}

func (r *running) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		c.stop()
	}
	r.all = nil
}

// A Runner runs tests, as testing.M does.
type Runner interface{ Run() int }

// Around returns a runner that runs m and then ends the emulators that its tests
// started. A package that does without leaves that to the guards.
func Around(m Runner) Runner { return around{m} }

type around struct{ m Runner }

// Run runs the tests.
func (a around) Run() int {
	defer children.stop()
	return a.m.Run()
}

// Project is a project id that no other test has: an emulator keeps projects apart.
func Project() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "test-" + hex.EncodeToString(b[:])
}
