package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
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

	read bool // the call changes nothing
}

// Do sends r, repeats it as docs/reference/retries.md says, and returns the body of the answer, at
// most 16 MiB.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, error) {
	var body []byte
	err := c.call(ctx, r.complete(), &body)
	return body, err
}

// An Answer is an answer as the server sent it.
type Answer struct {
	Header http.Header
	Body   []byte
}

// WithAnswer returns a context for calls, each of which stores its answer in a, too.
func WithAnswer(ctx context.Context, a *Answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

type answerKey struct{}

// read returns the answer to a call that changes nothing.
func read[T any](ctx context.Context, c *Client, path string, query url.Values) (v T, err error) {
	return v, c.call(ctx, Request{Path: path, Query: query}.complete(), &v)
}

// change returns the answer to a call that may be repeated. body is sent as JSON; nil sends none.
func change[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (v T, err error) {
	r := Request{Method: method, Path: path, Query: query, Safe: true}
	if body != nil {
		if r.Body, err = encode(body); err != nil {
			return v, err
		}
	}
	return v, c.call(ctx, r, &v)
}

// params makes a query of names and values. Empty values are left out.
func params(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query
}

// number is empty for 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// lacks names the list, or else the moment, or else the text, that every answer of v's type has, if v has none: another program
// has answered.
func lacks(v any) (missing string) {
	of := reflect.Indirect(reflect.ValueOf(v))
	if of.Kind() != reflect.Struct {
		return ""
	}
	moment := false
	for i := range of.NumField() {
		name, options, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		switch f := of.Field(i); {
		case name == "" || options != "":
		case f.Kind() == reflect.Slice && f.IsNil():
			return name
		case f.Kind() == reflect.Slice:
			return ""
		case f.Type() == reflect.TypeFor[time.Time]() && !moment:
			if moment, missing = true, ""; f.IsZero() {
				missing = name
			}
		case f.Kind() == reflect.String && f.String() == "" && !moment:
			missing = name
		}
	}
	return missing
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
