package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(emulator.Around(builds{m}))
}

// builds runs the tests and removes the binaries that they built.
type builds struct{ m *testing.M }

func (b builds) Run() int {
	defer func() {
		if binaryGuard != nil {
			binaryGuard.End()
			_ = os.RemoveAll(binaryDir)
		}
	}()
	return b.m.Run()
}

// binaryDir contains the built command. binaryGuard is nil if no test needed it.
var (
	binaryDir   string
	binaryGuard *child.Guard
)

// buildOnce builds the command as users run it, once for all tests.
var buildOnce = sync.OnceValues(func() (string, error) { return build("countmill", nil) })

// build builds the command, which is removed after the tests. COUNTMILL_TEST_OVERLAY names a file for go build -overlay: a
// countmill with a bug, which tests must find.
func build(name string, env []string, flags ...string) (string, error) {
	if err := makeBinaryDir(); err != nil {
		return "", err
	}
	binary := filepath.Join(binaryDir, name)
	args := slices.Concat([]string{"build", "-o", binary}, flags, []string{"../../../cmd/countmill"})
	if overlay := os.Getenv("COUNTMILL_TEST_OVERLAY"); overlay != "" {
		args = slices.Insert(args, 1, "-overlay", overlay)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
}

var makeBinaryDir = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "countmill-e2e-")
	if err != nil {
		return err
	}
	if binaryGuard, err = child.GuardDirs(dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	binaryDir = dir
	return nil
})

// A process is a countmill that runs one role.
type process struct {
	role      string
	url       string // valid when listening is closed
	cmd       *exec.Cmd
	guard     *child.Guard
	unguard   sync.Once
	log       *logged
	listening chan struct{}
	exited    chan struct{}
	err       error // how it ended; valid when exited is closed
}

// start runs a role on a free port and waits for its address line. It ends with the test.
func start(t *testing.T, env []string, role string, flags ...string) *process {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return startBinary(t, binary, env, role, flags...)
}

// startBinary is start for another countmill.
func startBinary(t *testing.T, binary string, env []string, role string, flags ...string) *process {
	t.Helper()
	p, err := spawnBinary(binary, env, role, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of the %s at %s:\n%s", role, p.url, p.log)
		}
	})
	select {
	case <-p.listening:
	case <-p.exited:
		t.Fatalf("countmill %s printed nothing: %v\n%s", role, p.err, p.log)
	}
	return p
}

// spawn runs a role on a free port. It ends with the tests' process, however that ends.
func spawn(env []string, role string, flags ...string) (*process, error) {
	binary, err := buildOnce()
	if err != nil {
		return nil, err
	}
	return spawnBinary(binary, env, role, flags...)
}

func spawnBinary(binary string, env []string, role string, flags ...string) (*process, error) {
	p := &process{role: role, log: &logged{}, listening: make(chan struct{}), exited: make(chan struct{})}
	p.cmd = exec.Command(binary, slices.Concat(strings.Fields(role), []string{"--listen", "127.0.0.1:0"}, flags)...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.log
	// A key that stops or interrupts the tests must not reach the process, which may be suspended.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(out)
	if p.guard, err = child.GuardProcess(p.cmd.Process.Pid); err != nil {
		_ = p.cmd.Process.Kill()
		<-p.exited
		return nil, fmt.Errorf("guard of a process: %w", err)
	}
	return p, nil
}

// follow waits for the line with the address, and then for the end.
func (p *process) follow(out io.Reader) {
	defer close(p.exited)
	lines := bufio.NewReader(out)
	line, _ := lines.ReadString('\n')
	if _, rest, found := strings.Cut(line, "http://"); found {
		p.url = "http://" + strings.Fields(rest)[0]
		close(p.listening)
	}
	_, _ = io.Copy(io.Discard, lines)
	p.err = p.cmd.Wait()
}

// kill ends the process by SIGKILL, unless it has ended.
func (p *process) kill() {
	p.unguard.Do(p.guard.End) // first: the guard must end before another process can get the number
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop ends the process by SIGTERM and wants exit 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(busy): // the process gives up before that, but not with exit 0
		t.Fatalf("the %s goes on after SIGTERM", p.role)
	}
	if p.err != nil {
		t.Errorf("the %s ended with %v, want exit 0\n%s", p.role, p.err, p.log)
	}
	p.kill()
}

// pause suspends the process until resume. Its connections stay open.
func (p *process) pause(t *testing.T) { p.signal(t, syscall.SIGSTOP) }

func (p *process) resume(t *testing.T) { p.signal(t, syscall.SIGCONT) }

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// A logged keeps a process's output, or its last part if it is long.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > 256<<10 {
		l.buf.Next(128 << 10)
	}
	return l.buf.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// client keeps no connections, because processes end under it.
var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the status and the body; status 0 means no answer.
func (p *process) get(path string) (int, string) {
	resp, err := client.Get(p.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// metric returns the sum of a metric over its labels, or 0 if it is absent.
func (p *process) metric(t *testing.T, name string) float64 {
	t.Helper()
	status, body := p.get("/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics of the %s: %d %s", p.role, status, body)
	}
	sum, err := sumOf(body, name)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// sumOf finds the metric in the text of /metrics.
func sumOf(body, name string) (sum float64, err error) {
	for line := range strings.Lines(body) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != name && !strings.HasPrefix(fields[0], name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}

// busy is extra time for a machine that is slow, or busy with other tests, compared with an idle one.
const busy = 3 * time.Minute

// until waits for done, and fails the test after a time that is enough on any machine. limit is enough
// for an idle one. A test that promises a duration checks the returned one.
func until(t *testing.T, limit time.Duration, what string, done func() bool) time.Duration {
	t.Helper()
	limit += busy
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s in vain for %s", limit, what)
		case <-tick.C:
		}
	}
	return time.Since(began)
}

// ready waits until /readyz is 200.
func (p *process) ready(t *testing.T) *process {
	t.Helper()
	until(t, 30*time.Second, "the "+p.role+" to be ready", func() bool {
		status, _ := p.get("/readyz")
		return status == http.StatusOK
	})
	return p
}
