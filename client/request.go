package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
)

// A Request is one call of the API, for the routes that have no method here, or for the bytes of an
// answer. docs/reference/http.md lists the routes.
type Request struct {
	// Method is that of HTTP. Default GET.
	Method string
	// Path begins with a slash. CounterPath and url.PathEscape escape names in it.
	Path  string
	Query url.Values
	// Body is sent as ContentType, application/json by default. Nil sends none.
	Body        []byte
	ContentType string
	// Key is the Idempotency-Key, 1 to 128 bytes. Empty sends none.
	Key string
	// Safe allows a repeat whatever became of the try before. A GET is always safe, and so is a
	// POST /v1/increments if Key or the ids of its increments stay the same.
	Safe bool
	// OnRetry is called before each wait for a repeat, with the error of the try. It must not block.
	OnRetry func(error)
	// OnHeader is called with the header of the answer, once its body was read. It must not block.
	OnHeader func(http.Header)

	read bool // the call changes nothing
}

// Do sends r, repeats it as docs/reference/retries.md says, and returns the body of the answer, at
// most 16 MiB.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, error) {
	var body []byte
	err := c.call(ctx, r.complete(), &body)
	return body, err
}

func (r Request) complete() Request {
	r.Method = cmp.Or(r.Method, http.MethodGet)
	r.read = r.read || r.Method == http.MethodGet
	r.Safe = r.Safe || r.read
	return r
}

// CounterPath is the path of a counter, /v1/counters/NAME. Every name is one segment.
func CounterPath(counter string) string {
	segment := url.PathEscape(counter)
	if counter == "." || counter == ".." {
		segment = strings.ReplaceAll(counter, ".", "%2E")
	}
	return "/v1/counters/" + segment
}
