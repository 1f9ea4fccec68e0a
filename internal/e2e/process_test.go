package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/emulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(builds{m})) }

// builds runs tests and removes what they built.
type builds struct{ m *testing.M }

func (b builds) Run() int {
	defer os.RemoveAll(binaryDir)
	return b.m.Run()
}

// binaryDir is where the built command lies; empty where no test needed it.
var binaryDir string

// buildOnce builds the command as people run it, once for all tests.
var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "countmill-e2e-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	binary := filepath.Join(dir, "countmill")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/countmill").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

// A process is a countmill that runs one role.
type process struct {
	role   string
	url    string
	cmd    *exec.Cmd
	guard  *exec.Cmd
	log    *logged
	exited chan struct{}
	err    error // how it ended, once exited is closed
}

// start runs a role on a free port and waits for its line. It ends with the test.
func start(t *testing.T, env []string, role string, flags ...string) *process {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{role: role, log: &logged{}, exited: make(chan struct{})}
	p.cmd = exec.Command(binary, append([]string{role, "--listen", "127.0.0.1:0"}, flags...)...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.watch(t)
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		defer close(p.exited)
		_, _ = io.Copy(io.Discard, out)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of the %s at %s:\n%s", role, p.url, p.log)
		}
	})
	if err != nil {
		<-p.exited
		t.Fatalf("countmill %s printed nothing: %v\n%s", role, err, p.log)
	}
	_, rest, _ := strings.Cut(line, "http://")
	p.url = "http://" + strings.Fields(rest)[0]
	return p
}

// watch kills the process when that of the tests has ended, however it did.
func (p *process) watch(t *testing.T) {
	t.Helper()
	p.guard = exec.Command("sh", "-c", `cat >/dev/null; kill -9 "$1" 2>/dev/null`, "sh", strconv.Itoa(p.cmd.Process.Pid))
	_, err := p.guard.StdinPipe()
	if err == nil {
		err = p.guard.Start()
	}
	if err != nil {
		t.Fatalf("guard of a process: %v", err)
	}
}

// kill ends the process by SIGKILL, unless it has ended.
func (p *process) kill() {
	if p.guard.ProcessState == nil {
		_ = p.guard.Process.Kill() // first: it must not outlive the process whose number it knows
		_ = p.guard.Wait()
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop ends the process by SIGTERM and wants exit 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(40 * time.Second):
		t.Fatalf("the %s goes on after SIGTERM", p.role)
	}
	if p.err != nil {
		t.Errorf("the %s ended with %v, want exit 0\n%s", p.role, p.err, p.log)
	}
	p.kill()
}

// pause has the process stand still until resume, with its connections open.
func (p *process) pause(t *testing.T) { p.signal(t, syscall.SIGSTOP) }

func (p *process) resume(t *testing.T) { p.signal(t, syscall.SIGCONT) }

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// A logged is what a process prints, its end if it is much.
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

// client keeps no connections: processes end under it.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the status and the body, 0 where there was no answer.
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

// metric is the sum of a metric over its labels, 0 where it is absent.
func (p *process) metric(t *testing.T, name string) float64 {
	t.Helper()
	status, body := p.get("/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics of the %s: %d %s", p.role, status, body)
	}
	var sum float64
	for line := range strings.Lines(body) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != name && !strings.HasPrefix(fields[0], name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// until waits for done, and fails the test after a time.
func until(t *testing.T, limit time.Duration, what string, done func() bool) time.Duration {
	t.Helper()
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
