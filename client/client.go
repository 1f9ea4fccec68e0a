package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
)

const (
	// maxAnswer is the most bytes of an answer that are read: 1,000 totals are below 1 MiB.
	maxAnswer = 16 << 20

	// firstPause is the wait before the first repeat. Each further wait is twice as long, up to
	// maxPause, half of it at random.
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// A Client talks to one countmill, or to several behind one address.
type Client struct {
	base    string // without a slash at the end
	token   func(context.Context) (string, error)
	fixed   string // of WithToken
	http    *http.Client
	timeout time.Duration
	silence time.Duration
	tries   int // 0: as many as there is time for
	// insecure allows a token over plain HTTP to another machine.
	insecure bool
}

// An Option changes a Client.
type Option func(*Client)

// WithToken sends a bearer token with each call, without the spaces and newlines around it. Over plain
// HTTP a token goes to this machine only, unless WithInsecure allows more.
func WithToken(token string) Option {
	return func(c *Client) {
		c.fixed = token
		c.token = func(context.Context) (string, error) { return token, nil }
	}
}

// WithTokenSource asks for the token before each call, for tokens that change.
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return func(c *Client) { c.token = source }
}

// WithInsecure lets tokens go over plain HTTP to other machines. Others can read them on the way.
func WithInsecure() Option { return func(c *Client) { c.insecure = true } }

// WithHTTPClient uses that client. It must not follow redirects: countmill never redirects, and a
// redirected POST becomes a GET.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithTimeout bounds one call, repeats included, if its context has no deadline. It also bounds the
// wait for the answer of a stream. Default 30s.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithTries sends a call at most n times. Default: as often as there is time for.
func WithTries(n int) Option { return func(c *Client) { c.tries = n } }

// WithSilence ends a connection of Watch or Events on which nothing came for that long. The server
// sends a line every 15 s. Default 45s.
func WithSilence(d time.Duration) Option { return func(c *Client) { c.silence = d } }

// New returns a client of the server at base: http://HOST:PORT, https://HOST:PORT, or the same with
// a path below which the server is mounted.
func New(base string, options ...Option) (*Client, error) {
	u, err := url.Parse(base)
	if err == nil && u.User != nil {
		return nil, errors.New("client: the address must hold no name and no password")
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("client: the address must be http://HOST:PORT or https://HOST:PORT, got %q", base)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	transport.TLSHandshakeTimeout = 5 * time.Second
	transport.MaxIdleConnsPerHost = 32
	c := &Client{
		base: strings.TrimRight(u.String(), "/"), timeout: 30 * time.Second, silence: 45 * time.Second,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	for _, o := range options {
		o(c)
	}
	if c.timeout <= 0 || c.silence <= 0 || c.tries < 0 {
		return nil, fmt.Errorf("client: the timeout and the silence must be above 0 and the tries not negative, got %s, %s and %d", c.timeout, c.silence, c.tries)
	}
	if _, err := bearer(c.fixed); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if c.token != nil && !c.insecure && u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return nil, fmt.Errorf("client: a token is not sent to %s over plain http, where others can read it: use https, or WithInsecure", u.Host)
	}
	return c, nil
}

// CloseIdleConnections closes connections that no call uses. The Client can be used again.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// call sends r until it is answered, and decodes the answer into v, which may be nil.
func (c *Client) call(ctx context.Context, r Request, v any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	deadline, _ := ctx.Deadline()
	most := time.Until(deadline)
	if r.Safe && c.tries != 1 {
		most /= 2 // a try that hangs leaves time for another
	}
	unknown := false
	for try := 1; ; try++ {
		err := c.bounded(ctx, most, r, v)
		if err == nil {
			return nil
		}
		again, open := judge(err)
		if !again || open && !r.Safe || try == c.tries || !pause(ctx, try, retryAfter(err), err, r.OnRetry) {
			return conclude(r, err, unknown)
		}
		unknown = unknown || open
		// Round removes the monotonic reading, which does not count the time of a suspension. The server does, and may have forgotten the key.
		if unknown && time.Until(deadline.Round(0)) < 0 {
			return conclude(r, err, unknown)
		}
	}
}

// conclude returns the error that the caller gets. unknown is true if an earlier try may have been
// applied.
func conclude(r Request, err error, unknown bool) error {
	switch {
	case r.read && errors.Is(err, countmill.ErrOutcomeUnknown):
		return &outcome{countmill.ErrUnavailable, "nothing was read", err}
	case unknown && !r.read && !errors.Is(err, countmill.ErrOutcomeUnknown) && !answeredForGood(err):
		return &outcome{countmill.ErrOutcomeUnknown, "an earlier try was maybe counted; then", err}
	}
	return err
}

// judge says of an error whether a repeat may help, and whether the outcome is open.
func judge(err error) (again, open bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.repeatable(), e.open()
	}
	if e, ok := errors.AsType[*unreached](err); ok {
		return !e.wrong(), false
	}
	_, ok := errors.AsType[*broken](err)
	return ok, ok
}

// answeredForGood reports whether the answer says what became of all tries: these ids or this key
// were counted with other increments, so no earlier try of these was counted.
func answeredForGood(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Type == "id-reused" || e.Type == "ids-reused")
}

// retryAfter is how long the server asks to wait; 0 if it does not say.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// pause waits for least or longer after a try, the first of which is 1, and reports whether there is time for another.
func pause(ctx context.Context, try int, least time.Duration, err error, waiting func(error)) bool {
	wait := min(firstPause<<min(try-1, 10), maxPause)
	wait = max(wait/2+rand.N(wait/2), least)
	if deadline, ok := ctx.Deadline(); ctx.Err() != nil || ok && time.Until(deadline) < wait {
		return false
	}
	if waiting != nil {
		waiting(err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// bounded sends r once, and waits no longer than most.
func (c *Client) bounded(ctx context.Context, most time.Duration, r Request, v any) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return c.try(ctx, r, v)
}

// try sends r once.
func (c *Client) try(ctx context.Context, r Request, v any) error {
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	if err != nil {
		return &broken{c.base, err}
	}
	if a, ok := ctx.Value(answerKey{}).(*Answer); ok {
		*a = Answer{res.Header, body}
	}
	if raw, ok := v.(*[]byte); ok {
		*raw = body
		return nil
	}
	if v == nil {
		return nil
	}
	err = json.Unmarshal(body, v)
	if name := lacks(v); err == nil && name != "" {
		err = fmt.Errorf("it has no %s", name)
	}
	if err != nil {
		return &broken{c.base, fmt.Errorf("the answer to %s %s: %w; is that a countmill?", r.Method, r.Path, err)}
	}
	return nil
}

// send returns a 2xx answer. Its body is the caller's to close.
func (c *Client) send(ctx context.Context, r Request) (*http.Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, &unreached{c.base, err}
	}
	target := c.base + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", countmill.ErrInvalid, err)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.ContentType, "application/json"))
	}
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	if err := c.authorize(ctx, req); err != nil {
		return nil, err
	}
	res, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	e := problem(text)
	e.Status = res.StatusCode
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return nil, e
}

// do makes one request. The error says whether it may have left.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	// Without a connection nothing was sent. http.Client may try several.
	var connecting, connected atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}
	res, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	switch {
	case err == nil:
		return res, nil
	case connected.Load() || !connecting.Load() && !c.traced():
		return nil, &broken{c.base, err}
	case connecting.Load() || req.Context().Err() != nil:
		return nil, &unreached{c.base, err}
	}
	return nil, fmt.Errorf("%w: nothing was sent to %s: %w", countmill.ErrInvalid, c.base, innermost(err))
}

// traced reports whether the transport says when it connects. Others than that of net/http need not.
func (c *Client) traced() bool {
	_, ok := c.http.Transport.(*http.Transport)
	return ok || c.http.Transport == nil
}

func (c *Client) authorize(ctx context.Context, req *http.Request) error {
	if c.token == nil {
		return nil
	}
	token, err := c.token(ctx)
	if err != nil {
		return fmt.Errorf("%w: the token source: %w", ErrDenied, err)
	}
	if token, err = bearer(token); err != nil {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// bearer is a token without the newline of its file. A token is ASCII without spaces.
func bearer(token string) (string, error) {
	token = strings.TrimSpace(token)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token has a space, or characters that no token has")
	}
	return token, nil
}

// encode is v as JSON without the escapes that HTML needs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}
