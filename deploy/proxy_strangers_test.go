//go:build unix

package deploy_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// Behind each example, strangers with half of a request each, more than countmill may have connections, keep no caller and no probe
// out.
func TestProxiesBesideStrangers(t *testing.T) {
	t.Parallel()
	eachProxy(t, func(t *testing.T, program string, command proxyCommand) {
		for name, guarded := range map[string]bool{"with tokens": true, "without tokens": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newProxied(t)
				p.count(t, guarded, 16)
				p.start(t, command(t, program, p, nil))
				p.await(t)
				p.client = p.clientOf(t, "HTTP/1.1")
				kept := p.callAmong(t, http.MethodPost, "/v1/increments", `{"counter":"a","id":"1"}`)
				for range 40 {
					p.stranger(t)
				}
				for i, got := range []int{
					kept, p.callAmong(t, http.MethodPost, "/v1/increments", `{"counter":"a","id":"2"}`), p.callAmong(t, http.MethodGet, "/healthz", ""),
				} {
					if want := []int{202, 202, 200}[i]; got != want {
						t.Errorf("call %d beside 40 strangers is answered with %d, want %d", i, got, want)
					}
				}
			})
		}
	})
}

// callAmong returns the status of an answer. The proxy's connection is a stranger's until a call on it was let in, and many new ones may
// take its place before: then the proxy answers 502, and the call is repeated.
func (p *proxied) callAmong(t *testing.T, method, path, body string) (status int) {
	t.Helper()
	for range 50 {
		answer := p.call(t, method, path, body)
		_ = answer.Body.Close()
		if status = answer.StatusCode; status != http.StatusBadGateway {
			break
		}
	}
	return status
}

// stranger sends half of a request, and goes on.
func (p *proxied) stranger(t *testing.T) {
	t.Helper()
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{RootCAs: p.roots, NextProtos: []string{"http/1.1"}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /v1/increments HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", p.addr); err != nil {
		t.Fatal(err)
	}
}
