package httpserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
)

func TestBodyReader(t *testing.T) {
	t.Parallel()
	for _, max := range []int{1, 100, minRead - 1, minRead, minRead + 1, 3*minRead + 7} {
		for _, buffer := range []int{0, 1, minRead} {
			for _, size := range []int{0, 1, max - 1, max, max + 1, max + minRead} {
				name := fmt.Sprintf("%d of %d bytes, buffer %d", size, max, buffer)
				sent := bytes.Repeat([]byte("x"), size)
				grown := 0
				reader := BodyReader{Max: max, Timeout: time.Minute, Grow: func(n int) error { grown += n; return nil }}
				r := httptest.NewRequest("POST", "/", io.MultiReader(bytes.NewReader(sent))) // length unknown
				got, err := reader.Read(httptest.NewRecorder(), r, make([]byte, 0, buffer))
				if size > max {
					if p, ok := errors.AsType[*Problem](err); !ok || p.Status != 413 || p.Field != "body" || p.Limit != fmt.Sprint(max, " bytes") {
						t.Errorf("%s: got error %v, want a 413 that names the limit", name, err)
					}
				} else if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%s: got %d bytes, %v", name, len(got), err)
				}
				if cap(got) != buffer+grown {
					t.Errorf("%s: buffer of %d, asked for %d", name, cap(got), buffer+grown)
				}
				if cap(got) > max+1 && cap(got) > buffer {
					t.Errorf("%s: buffer of %d", name, cap(got))
				}
			}
		}
	}
}

func TestBodyReaderDoesNotTrustContentLength(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
	r.ContentLength = MaxBody
	got, err := BodyReader{Max: MaxBody}.Read(httptest.NewRecorder(), r, nil)
	if err != nil || cap(got) > minRead {
		t.Errorf("got a buffer of %d bytes, %v; want no more than %d", cap(got), err, minRead)
	}
	r = httptest.NewRequest("POST", "/", unread{t})
	r.ContentLength = MaxBody + 1
	if _, err := (BodyReader{Max: MaxBody}).Read(httptest.NewRecorder(), r, nil); err == nil {
		t.Error("a body announced as too large is accepted")
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

func TestBodyReaderStopsWhereGrowSays(t *testing.T) {
	t.Parallel()
	reader := BodyReader{Max: MaxBody, Grow: func(int) error { return countmill.ErrOverloaded }}
	r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 100)))
	buf, err := reader.Read(httptest.NewRecorder(), r, make([]byte, 0, 10))
	if !errors.Is(err, countmill.ErrOverloaded) || cap(buf) != 10 {
		t.Errorf("got error %v, buffer of %d; want ErrOverloaded and the buffer given", err, cap(buf))
	}
}

func TestContentType(t *testing.T) {
	t.Parallel()
	accepted := []string{"application/json", "application/x-ndjson"}
	for _, tc := range []struct {
		types, codings []string
		want           string
		field, limit   string // of the 415
	}{
		{types: []string{"application/json"}, want: "application/json"},
		{types: []string{"application/x-ndjson"}, want: "application/x-ndjson"},
		{types: []string{"Application/JSON; charset=UTF-8"}, want: "application/json"},
		{types: []string{`application/json;charset="utf-8"`}, want: "application/json"},
		{types: []string{"application/json"}, codings: []string{"Identity"}, want: "application/json"},
		{field: "Content-Type", limit: "application/json, application/x-ndjson"},
		{types: []string{""}, field: "Content-Type", limit: "application/json, application/x-ndjson"},
		{types: []string{"text/plain"}, field: "Content-Type", limit: "application/json, application/x-ndjson"},
		{types: []string{"application/x-www-form-urlencoded"}, field: "Content-Type", limit: "application/json, application/x-ndjson"},
		{types: []string{"application/json", "application/json"}, field: "Content-Type", limit: "application/json, application/x-ndjson"},
		{types: []string{"application/json; charset=latin1"}, field: "Content-Type", limit: "utf-8"},
		{types: []string{"application/json; charset=utf-8; v=1"}, field: "Content-Type", limit: "charset=utf-8 or nothing"},
		{types: []string{"application/json; v=1"}, field: "Content-Type", limit: "charset=utf-8 or nothing"},
		{types: []string{"application/json; charset"}, field: "Content-Type", limit: "application/json, application/x-ndjson"},
		{types: []string{"application/json"}, codings: []string{"gzip"}, field: "Content-Encoding", limit: "identity"},
		{types: []string{"application/json"}, codings: []string{"identity", "gzip"}, field: "Content-Encoding", limit: "identity"},
		{types: []string{"application/json"}, codings: []string{""}, field: "Content-Encoding", limit: "identity"},
	} {
		r := &http.Request{Header: http.Header{"Content-Type": tc.types, "Content-Encoding": tc.codings}}
		got, err := ContentType(r, accepted...)
		if tc.want != "" {
			if err != nil || got != tc.want {
				t.Errorf("%q %q: got %q, %v; want %q", tc.types, tc.codings, got, err, tc.want)
			}
			continue
		}
		p, ok := errors.AsType[*Problem](err)
		if !ok || p.Status != 415 || p.Field != tc.field || !strings.Contains(p.Limit, tc.limit) {
			t.Errorf("%q %q: got %q, %v; want a 415 for %s with limit %s", tc.types, tc.codings, got, err, tc.field, tc.limit)
			continue
		}
		if slices.Equal(tc.types, []string{"application/x-www-form-urlencoded"}) && !strings.Contains(p.Detail, "--json") {
			t.Errorf("got detail %q, want curl's --json named", p.Detail)
		}
	}
}
