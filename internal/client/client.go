// Package client calls a countmill over HTTP, for the command line and for package transfer.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// maxAnswer is the most bytes of an answer that is read: 1,000 totals are below 1 MiB.
const maxAnswer = 8 << 20

// A Client calls one running countmill.
type Client struct {
	base  string // without a trailing slash
	token string // empty: none
	http  *http.Client
}

// New takes http://HOST:PORT or HOST:PORT. A token goes over plain HTTP to this
// machine only, unless insecure allows others.
func New(server, token string, insecure bool) (*Client, error) {
	text := server
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--server: must be http://HOST:PORT or https://HOST:PORT, got %q", server)
	}
	if u.User != nil {
		return nil, fmt.Errorf("--server: must hold no name and no password; use --token-file")
	}
	if token != "" && u.Scheme == "http" && !isLoopback(u.Hostname()) && !insecure {
		return nil, fmt.Errorf("--token: is not sent to %s over plain http, where others can read it: use https, or --insecure", u.Host)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	transport.TLSHandshakeTimeout = 5 * time.Second
	return &Client{
		base:  strings.TrimRight(u.String(), "/"),
		token: token,
		http:  &http.Client{Transport: transport, CheckRedirect: noRedirect},
	}, nil
}

func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// noRedirect: countmill never redirects, and a POST that is redirected becomes a GET.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// A Problem is an error that the server answered with.
type Problem struct {
	Status     int                  `json:"status"`
	Type       string               `json:"type"`
	Title      string               `json:"title"`
	Detail     string               `json:"detail"`
	Conflicts  []countmill.Conflict `json:"conflicts"`
	retryAfter time.Duration
}

// IDsReused is the problem that names the increments of a request that were not counted, and says
// that all others were; nil for any other error.
func IDsReused(err error) *Problem {
	problem, ok := errors.AsType[*Problem](err)
	if ok && problem.Type == "urn:countmill:problem:ids-reused" && len(problem.Conflicts) > 0 {
		return problem
	}
	return nil
}

func (e *Problem) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if text == "" {
		text = "is that a countmill?"
	}
	if e.Status == http.StatusUnauthorized {
		text += "; give one with --token-file or COUNTMILL_TOKEN"
	}
	return fmt.Sprintf("%s (HTTP %d)", text, e.Status)
}

// An Unreachable error means that the request was never sent.
type Unreachable struct {
	base  string
	cause error
}

func (e *Unreachable) Unwrap() error { return e.cause }

func (e *Unreachable) Error() string {
	return fmt.Sprintf("nothing answers at %s (%v): start one with `countmill up`, or name another with --server URL", e.base, e.cause)
}

// Post sends v as JSON and returns the body of a 2xx answer.
func (c *Client) Post(ctx context.Context, path string, header http.Header, v any) ([]byte, error) {
	return c.Send(ctx, http.MethodPost, path, header, v)
}

// Send is Post with another method. A nil v sends no body.
func (c *Client) Send(ctx context.Context, method, path string, header http.Header, v any) ([]byte, error) {
	var body bytes.Buffer
	if v != nil {
		enc := json.NewEncoder(&body)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return nil, err
		}
	}
	contentType := ""
	if v != nil {
		contentType = "application/json"
	}
	return c.sendBody(ctx, method, path, contentType, header, body.Bytes())
}

// PostBody sends a body of that type and returns the body of a 2xx answer.
func (c *Client) PostBody(ctx context.Context, path, contentType string, header http.Header, body []byte) ([]byte, error) {
	return c.sendBody(ctx, http.MethodPost, path, contentType, header, body)
}

func (c *Client) sendBody(ctx context.Context, method, path, contentType string, header http.Header, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	return c.read(req)
}

// read returns the body of a 2xx answer to req.
func (c *Client) read(req *http.Request) ([]byte, error) {
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, c.Explain(err)
	}
	return answer, nil
}

// CounterPath is the path of one counter: its name is one segment, and "." and ".." are names
// like others.
func CounterPath(name string) string {
	segment := url.PathEscape(name)
	if name == "." || name == ".." {
		segment = strings.ReplaceAll(name, ".", "%2E")
	}
	return "/v1/counters/" + segment
}

// Do returns the answer if its status is 2xx; its body is the caller's to close.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.Explain(err)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	problem := &Problem{Status: res.StatusCode}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	_ = json.Unmarshal(text, problem) // another server's error need not be JSON
	problem.Status = res.StatusCode
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		problem.retryAfter = time.Duration(s) * time.Second
	}
	return nil, problem
}

// Explain makes one line of net/http's error.
func (c *Client) Explain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return &Unreachable{base: c.base, cause: dial.Err}
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return fmt.Errorf("%s answers without TLS: write http:// instead of https://: %w", c.base, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s did not answer within --timeout: %w", c.base, context.DeadlineExceeded)
	}
	return fmt.Errorf("%s: %w", c.base, err)
}

// Get returns the body of a 2xx answer within timeout.
func (c *Client) Get(ctx context.Context, timeout time.Duration, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	return c.read(req)
}

// Base is the URL of the server, without a trailing slash.
func (c *Client) Base() string { return c.base }

// Token is the bearer token of the client; empty for none.
func (c *Client) Token() string { return c.token }
