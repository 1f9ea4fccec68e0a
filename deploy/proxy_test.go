//go:build unix

package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// soon is how long an event may take through a proxy. A proxy that buffers holds it for 15 s or more.
const soon = 5 * time.Second

// patience is how long something may take that must happen.
const patience = time.Minute

// A proxied is a proxy in front of a real countmill, with a certificate of 127.0.0.1.
type proxied struct {
	dir, cert, key string
	behind, addr   string
	roots          *x509.CertPool
	client         *http.Client
	token          string
}

// Through each example a POST counts, a watch stream shows the total at once, and the longest query passes.
func TestProxies(t *testing.T) {
	t.Parallel()
	eachProxy(t, func(t *testing.T, program string, command proxyCommand) {
		p := newProxied(t)
		p.count(t, true, 0)
		p.start(t, command(t, program, p, nil))
		p.await(t)
		for i, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			p.client = p.clientOf(t, protocol)
			p.try(t, protocol, i)
		}
	})
}

// The examples wait longer for the calls that take long than for others.
func TestProxiesWaitForLongCalls(t *testing.T) {
	t.Parallel()
	eachProxy(t, func(t *testing.T, program string, command proxyCommand) {
		p := newProxied(t)
		slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(2 * time.Second):
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(slow.Close)
		p.behind = slow.Listener.Addr().String()
		p.start(t, command(t, program, p, map[string]string{"caddy": "timeout 60s", "nginx": "timeout 60s"}))
		p.await(t)
		p.client = p.clientOf(t, "HTTP/1.1")
		for path, want := range map[string]int{
			"/v1/recount": http.StatusOK, "/v1/verify": http.StatusOK, "/v1/backup": http.StatusOK,
			"/v1/totals": http.StatusGatewayTimeout, "/v1/recounts": http.StatusGatewayTimeout,
		} {
			answer := p.call(t, http.MethodPost, path, "{}")
			if _ = answer.Body.Close(); answer.StatusCode != want {
				t.Errorf("a call of 2 s of %s, where others have 1 s: got %s, want %d", path, answer.Status, want)
			}
		}
	})
}

// A proxyCommand runs a proxy in front of p. The limit of the example that limits has for it is a second then.
type proxyCommand func(t *testing.T, program string, p *proxied, limits map[string]string) *exec.Cmd

func eachProxy(t *testing.T, test func(t *testing.T, program string, command proxyCommand)) {
	t.Helper()
	longtest.Only(t, "starts proxies")
	for name, command := range map[string]proxyCommand{"caddy": caddy, "nginx": nginx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, needed(t, name), command)
		})
	}
}

// limited adds a limit of an example to the texts that are replaced.
func limited(names map[string]string, limit string) map[string]string {
	if limit != "" {
		names[limit] = "timeout 1s"
	}
	return names
}

// try counts through the proxy, while the counter has a total before.
func (p *proxied) try(t *testing.T, protocol string, before int) {
	t.Helper()
	events := p.watch(t)
	if event := next(t, events, patience); !strings.Contains(event, fmt.Sprintf(`"total":%d`, before)) {
		t.Fatalf("%s: the first event is %s", protocol, event)
	}
	answer := p.call(t, http.MethodPost, "/v1/increments", `{"counter":"a"}`)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted || answer.Proto != protocol {
		t.Fatalf("POST over %s is answered with %s over %s", protocol, answer.Status, answer.Proto)
	}
	if event := next(t, events, soon); !strings.Contains(event, fmt.Sprintf(`"total":%d`, before+1)) {
		t.Errorf("%s: after the POST the event is %s", protocol, event)
	}
	names := strings.Repeat("&counter="+strings.Repeat("%2F", 500), 100) // the longest that countmill takes
	answer = p.call(t, http.MethodGet, "/v1/totals?"+names[1:], "")
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("%s: a query of %d bytes is answered with %s", protocol, len(names), answer.Status)
	}
}

// clientOf speaks one protocol, and trusts the certificate of the proxy only.
func (p *proxied) clientOf(t *testing.T, protocol string) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(protocol == "HTTP/1.1")
	protocols.SetHTTP2(protocol == "HTTP/2.0")
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots}, Protocols: protocols, ResponseHeaderTimeout: patience / 2}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func caddy(t *testing.T, program string, p *proxied, limits map[string]string) *exec.Cmd {
	file := replaced(t, p, "proxy/Caddyfile", limited(map[string]string{
		"count.example.com {": "{\n\tadmin off\n\tauto_https off\n}\nhttps://" + p.addr + " {\n\ttls " + p.cert + " " + p.key,
		"127.0.0.1:8080":      p.behind,
	}, limits["caddy"]))
	cmd := exec.Command(program, "run", "--adapter", "caddyfile", "--config", file)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir, "HOME="+p.dir)
	return cmd
}

func nginx(t *testing.T, program string, p *proxied, limits map[string]string) *exec.Cmd {
	file := replaced(t, p, "proxy/nginx.conf", limited(map[string]string{
		"listen 443 ": "listen " + p.addr + " ", "127.0.0.1:8080": p.behind,
		"/etc/ssl/certs/count.example.com.pem": p.cert, "/etc/ssl/private/count.example.com.key": p.key,
		"server_name count.example.com;": "server_name 127.0.0.1;",
	}, limits["nginx"]))
	whole := filepath.Join(p.dir, "whole.conf")
	text := "pid " + p.dir + "/pid;\nerror_log stderr;\ndaemon off;\nevents {}\nhttp {\naccess_log off;\n"
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += of + "_temp_path " + p.dir + "/" + of + ";\n"
	}
	if err := os.WriteFile(whole, []byte(text+"include "+file+";\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.Command(program, "-p", p.dir, "-e", "stderr", "-c", whole)
}

// replaced writes a copy of an example with other names. Each of them has to be in the example.
func replaced(t *testing.T, p *proxied, example string, names map[string]string) string {
	t.Helper()
	b, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for from, to := range names {
		if !strings.Contains(text, from) {
			t.Fatalf("%s has no %q", example, from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	file := filepath.Join(p.dir, filepath.Base(example))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newProxied makes a certificate, and reserves an address for the proxy.
func newProxied(t *testing.T) *proxied {
	t.Helper()
	p := &proxied{dir: t.TempDir()}
	p.certify(t)
	kept, err := child.KeepPort()
	if err != nil {
		t.Fatal(err)
	}
	p.addr = kept.Addr()
	t.Cleanup(func() { _ = kept.Free() })
	return p
}

// count starts countmill behind the proxy, with a token or without, and with at most that many connections; 0: the default.
func (p *proxied) count(t *testing.T, guarded bool, connections int) {
	t.Helper()
	cfg := app.Config{Listen: "127.0.0.1:0", Store: "pebble:" + filepath.Join(p.dir, "data"), Connections: connections}
	if guarded {
		cfg.Tokens = filepath.Join(p.dir, "tokens")
		p.token = strings.TrimSpace(countmill(t, "token", "new", "all", "--scope", "publish,read", "--file", cfg.Tokens))
	}
	a, err := app.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p.behind = a.Addr()
}

// certify writes the certificate of 127.0.0.1 that httptest has.
func (p *proxied) certify(t *testing.T) {
	t.Helper()
	web := httptest.NewTLSServer(nil)
	web.Close()
	secret, err := x509.MarshalPKCS8PrivateKey(web.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	p.cert, p.key = filepath.Join(p.dir, "cert.pem"), filepath.Join(p.dir, "key.pem")
	for file, block := range map[string]*pem.Block{p.cert: {Type: "CERTIFICATE", Bytes: web.Certificate().Raw}, p.key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.roots = x509.NewCertPool()
	p.roots.AddCert(web.Certificate())
}

// start runs the proxy until the end of the test.
func (p *proxied) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", log.Bytes())
		}
	})
}

// await waits until the proxy listens.
func (p *proxied) await(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		conn, err := net.DialTimeout("tcp", p.addr, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (p *proxied) call(t *testing.T, method, path, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if p.token != "" {
		request.Header.Set("Authorization", "Bearer "+p.token)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := p.client.Do(request)
	if err != nil {
		t.Fatalf("%s %.60s: %v", method, path, errors.Unwrap(err))
	}
	return answer
}

// watch returns the data of the events of a stream.
func (p *proxied) watch(t *testing.T) <-chan string {
	t.Helper()
	answer := p.call(t, http.MethodGet, "/v1/watch?counter=a", "")
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the stream is answered with %s", answer.Status)
	}
	events := make(chan string, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
				events <- data
			}
		}
	}()
	t.Cleanup(func() {
		_ = answer.Body.Close()
		<-ended
	})
	return events
}

func next(t *testing.T, events <-chan string, within time.Duration) string {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(within):
		t.Fatalf("no event within %s", within)
		return ""
	}
}

// countmill runs a command, and returns its output.
func countmill(t *testing.T, args ...string) string {
	t.Helper()
	var out, problems bytes.Buffer
	if code := command.Main(command.Args(args...), command.Environ(nil), command.Streams(nil, &out, &problems), command.Context(t.Context())); code != 0 {
		t.Fatalf("countmill %q ends with %d: %s", args, code, problems.Bytes())
	}
	return out.String()
}
