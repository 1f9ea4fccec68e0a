package command

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// binaryDir is the directory of the built command; empty if no test needed it.
var binaryDir string

// buildOnce builds the command as people run it, once for all tests.
var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "countmill-test-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	binary := filepath.Join(dir, "countmill")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/countmill").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

// patience is how long something may take that must happen: longer than any machine needs.
const patience = 3 * time.Minute

// A process is a running `countmill up`.
type process struct {
	cmd    *exec.Cmd
	url    string
	line   string // the line that it printed
	stderr *bytes.Buffer
	exited chan error
}

// up starts the built command on a free port and waits for its line.
func up(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs the command")
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{stderr: new(bytes.Buffer), exited: make(chan error, 1)}
	p.cmd = exec.Command(binary, append([]string{"up", "--listen", "127.0.0.1:0", "--data", dir}, args...)...)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	p.line, err = bufio.NewReader(out).ReadString('\n')
	go func() { io.Copy(io.Discard, out); p.exited <- p.cmd.Wait() }()
	if err != nil {
		<-p.exited
		t.Fatalf("countmill up printed nothing: %v\n%s", err, p.stderr)
	}
	_, rest, _ := strings.Cut(p.line, "http://")
	p.url, _, _ = strings.Cut("http://"+rest, " ")
	return p
}

// signal sends a signal and returns how the process ended.
func (p *process) signal(t *testing.T, sig os.Signal) error {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.exited:
		return err
	case <-time.After(patience):
		t.Fatalf("the process goes on after %v:\n%s", sig, p.stderr)
		return nil
	}
}

// A ledger is what clients know of the increments they sent.
type ledger struct {
	client    http.Client
	anonymous atomic.Int64 // accepted
	unknown   atomic.Int64 // anonymous ones without an answer, or with one that leaves it open
	open      atomic.Int64 // the latter
	keyed     atomic.Int64 // accepted in the end; each was repeated until then
	wg        sync.WaitGroup
}

// post sends one increment and returns the status, 0 if there was no answer.
func (l *ledger) post(url, body, key string) int {
	req, err := http.NewRequest("POST", url+"/v1/increments", strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := l.client.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// run writes until stop is closed. url gives the process of the moment.
func (l *ledger) run(workers int, url func() string, stop <-chan struct{}) {
	l.client.Timeout = patience
	l.client.Transport = &http.Transport{MaxIdleConnsPerHost: workers}
	for worker := range workers {
		l.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				l.anonymousOnce(url())
				l.keyedUntilAccepted(url, fmt.Sprint("key-", worker, "-", i))
			}
		})
	}
}

func (l *ledger) anonymousOnce(url string) {
	switch status := l.post(url, `{"counter":"anonymous"}`, ""); status {
	case 202:
		l.anonymous.Add(1)
	case 429, 503: // surely not counted
	default:
		l.unknown.Add(1)
		l.open.Add(int64(min(status, 1)))
	}
}

func (l *ledger) keyedUntilAccepted(url func() string, key string) {
	for l.post(url(), `[{"counter":"keyed"},{"counter":"with-id","id":"`+key+`"}]`, key) != 202 {
		<-time.After(5 * time.Millisecond)
	}
	l.keyed.Add(1)
}

// check compares the ledger with the totals of a process.
func (l *ledger) check(t *testing.T, p *process) {
	t.Helper()
	anonymous, keyed, ids := totalOf(t, p, "anonymous"), totalOf(t, p, "keyed"), totalOf(t, p, "with-id")
	accepted, unknown := l.anonymous.Load(), l.unknown.Load()
	if anonymous < accepted || anonymous > accepted+unknown {
		t.Errorf("anonymous total is %d, want %d to %d", anonymous, accepted, accepted+unknown)
	}
	if want := l.keyed.Load(); keyed != want || ids != want {
		t.Errorf("keyed total is %d and that of ids %d, want %d", keyed, ids, want)
	}
	if n := l.open.Load(); n > 0 {
		t.Errorf("%d answers leave open whether an increment is counted, want that each says it", n)
	}
	t.Logf("%d anonymous accepted, %d unknown, %d keyed", accepted, unknown, l.keyed.Load())
}

func totalOf(t *testing.T, p *process, counter string) int64 {
	t.Helper()
	got := try(t, nil, "get", counter, "--server", p.url)
	n, err := strconv.ParseInt(strings.TrimSpace(got.out), 10, 64)
	if got.code != 0 || err != nil {
		t.Fatalf("get %s: %+v", counter, got)
	}
	return n
}

// SIGTERM ends the process with exit 0, which says that it was in time, and all that was
// accepted is counted.
func TestTermFinishesWhatItAccepted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := up(t, dir)
	var current atomic.Pointer[process]
	current.Store(p)
	var l ledger
	stop := make(chan struct{})
	l.run(8, func() string { return current.Load().url }, stop)
	for range 2 {
		before := l.keyed.Load()
		for l.keyed.Load() < before+200 {
			<-time.After(time.Millisecond)
		}
		if err := current.Load().signal(t, syscall.SIGTERM); err != nil {
			t.Errorf("ended with %v, want exit 0:\n%s", err, current.Load().stderr)
		}
		current.Store(up(t, dir))
	}
	close(stop)
	l.wg.Wait()
	l.check(t, current.Load())
	l.client.CloseIdleConnections()
}

// The second signal does not wait for anything.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir(), "--shutdown-timeout", "10m")
	body, hold := io.Pipe() // a request whose body never ends keeps the first stop waiting
	req, err := http.NewRequest("POST", p.url+"/v1/increments", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue") // which comes when the body is asked for: it is inside then
	transport := &http.Transport{ExpectContinueTimeout: patience}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if res, err := transport.RoundTrip(req); err == nil {
			res.Body.Close()
		}
	}()
	if _, err := io.WriteString(hold, `{"counter":`); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stop to begin", func() bool {
		res, err := transport.RoundTrip(mustRequest(t, p.url+"/readyz"))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == 503
	})
	if err := p.signal(t, syscall.SIGTERM); err == nil { // which does not wait for 10m
		t.Error("the process ended with exit 0, want an error")
	}
	hold.Close()
	<-answered
	transport.CloseIdleConnections()
}

func mustRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
