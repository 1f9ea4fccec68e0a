package httpbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// An Option changes a Bus.
type Option func(*Bus)

// WithToken sends a bearer token with each batch. It needs the scope publish. Over plain HTTP a token
// goes to this machine only, unless WithInsecure allows more.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource asks for the token before each call, for tokens that change. All tokens of one
// publisher must have the same name and the same limits: if its name changes while a batch is
// repeated, the batch may count twice. The source must allow concurrent calls. It must return when
// its context ends, and the time-out of the call includes it.
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return func(b *Bus) { b.token = source }
}

// WithInsecure lets tokens go over plain HTTP to other machines. Others can read them on the way.
func WithInsecure() Option { return func(b *Bus) { b.insecure = true } }

// WithHTTPClient uses that client. It must not follow redirects: countmill never redirects, and a
// redirected POST becomes a GET.
func WithHTTPClient(h *http.Client) Option { return func(b *Bus) { b.http = h } }

// WithTimeout bounds one call. Default 30s. It should be longer than the server's --request-timeout:
// the server's own answer says more than a time-out.
func WithTimeout(d time.Duration) Option { return func(b *Bus) { b.timeout = d } }

// WithLogger gets a line for each part that was not counted. Default: discards.
func WithLogger(log *slog.Logger) Option { return func(b *Bus) { b.log = log } }

// connections is the most idle connections that are kept. Guess: four times the calls that a
// publisher makes at once.
const connections = 32

// defaultHTTP never follows redirects.
func defaultHTTP() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	transport.TLSHandshakeTimeout = 5 * time.Second
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = connections, connections
	transport.WriteBufferSize = 64 << 10
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// check reports everything that is wrong with the options.
func (b *Bus) check(u *url.URL) error {
	var errs []error
	if b.timeout <= 0 {
		errs = append(errs, fmt.Errorf("httpbus: the time-out must be above 0, got %s", b.timeout))
	}
	if b.token != nil && !b.insecure && u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		errs = append(errs, fmt.Errorf("httpbus: a token is not sent to %s over plain http, where others can read it: use https, or WithInsecure", u.Host))
	}
	return errors.Join(errs...)
}

// parse reads the address of a server.
func parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("httpbus: the address must be http://HOST:PORT or https://HOST:PORT, got %q", address)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}
