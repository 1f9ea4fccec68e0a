//go:build linux

package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long something may take that must happen: longer than any machine needs.
const patience = time.Minute

// binary builds countmill once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "countmill-browser-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "countmill")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/countmill")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil && browserPath() != "" {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// A mill is a running `countmill up`.
type mill struct {
	url   string
	token string // sent with every call of the test
}

var listens = regexp.MustCompile(`listens on (http://\S+)`)

// await waits until something has happened.
func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s takes more than %s", what, patience)
		}
	}
}

// up runs `countmill up` on an empty directory until the test ends.
func up(t *testing.T, args ...string) *mill {
	t.Helper()
	find(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, append([]string{"up", "--listen", "127.0.0.1:0", "--data", t.TempDir()}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil || t.Failed() {
			t.Logf("countmill up: %v\n%s", err, log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	found := listens.FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("countmill up printed %q (%v)\n%s", line, err, log.String())
	}
	m := &mill{url: found[1]}
	await(t, "the start of countmill up", func() bool {
		res, err := http.Get(m.url + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return m
}

// count counts each counter once for each time that it is named.
func (m *mill) count(t *testing.T, counters ...string) {
	t.Helper()
	type increment struct {
		Counter string `json:"counter"`
	}
	incs := make([]increment, len(counters))
	for i, c := range counters {
		incs[i].Counter = c
	}
	body, err := json.Marshal(incs)
	if err != nil {
		t.Fatal(err)
	}
	m.post(t, body)
}

func (m *mill) post(t *testing.T, body []byte) {
	t.Helper()
	req, err := http.NewRequest("POST", m.url+"/v1/increments", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if m.token != "" {
		req.Header.Set("Authorization", "Bearer "+m.token)
	}
	res, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusAccepted {
		t.Fatalf("POST /v1/increments: got %d %s", res.StatusCode, text)
	}
}

// run runs a command of countmill and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, args...).Output()
	if err != nil {
		t.Fatalf("countmill %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// below serves a mill under a prefix, as a service does that embeds it. answer may answer instead
// of the mill.
func below(t *testing.T, m *mill, prefix string, answer func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	to, err := url.Parse(m.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer == nil || !answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	})))
	return serve(t, mux) + prefix + "/"
}
