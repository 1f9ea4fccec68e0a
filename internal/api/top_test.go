package api_test

import (
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
)

func TestTop(t *testing.T) {
	t.Parallel()
	f := &fakeReader{ranked: []board.Ranked{{Counter: `page:"a"`, Sum: 7}, {Counter: "page:b", Sum: -3}}}
	s := ask(t, api.Services{Reader: f}, api.Config{})
	const scan = `"complete_as_of":"2026-11-25T10:00:00.000000Z","partial":false}`
	s.want(t, "GET", "/v1/top?index=sites", "", 200, `{"top":[{"counter":"page:\"a\"","total":7,"rank":1},{"counter":"page:b","total":-3,"rank":2}],`+scan)
	s.want(t, "GET", "/v1/rank?index=sites&counter=page:b&format=string", "", 200, `{"counter":"page:b","total":"-3","rank":2,"of":2,`+scan)
	s.want(t, "GET", "/v1/rank?index=sites&counter=x", "", 200, `{"counter":"x","total":0,"rank":null,"of":2,`+scan)
	f.overflowed = []string{`page:"c"`, "page:d"}
	s.want(t, "GET", "/v1/top?index=sites", "", 200, `"total":-3,"rank":2}],"overflowed":["page:\"c\"","page:d"],"complete_as_of":`)
	s.want(t, "GET", "/v1/top?index=sites&n=7&of=groups&window=this-week&tz=Asia/Kolkata", "", 200, "")
	if q := f.board; q.N != 7 || !q.Groups || q.Window.String() != "this-week Asia/Kolkata" || q.Index != "sites" {
		t.Errorf("the reader was asked for %+v", q)
	}
	for _, tt := range []struct {
		err    error
		status int
		kind   string
	}{
		{&reader.NoIndexError{Index: "a"}, 404, "no-index"},
		{&reader.NoWindowError{Index: "a", Window: "today", Rule: "'page:*=15m:400d'"}, 404, "no-series"},
		{reader.ErrNoBoards, 409, "no-boards"},
		{&reader.NotServingError{Group: "=site:*", Index: "a"}, 409, "not-serving"},
	} {
		f.err = tt.err
		for _, path := range []string{"/v1/top?index=a", "/v1/rank?index=a&counter=x"} {
			status, text, header := s.call(t, "GET", path, "")
			if status != tt.status || !strings.Contains(text, "urn:countmill:problem:"+tt.kind+`"`) || (header.Get("Retry-After") == "5") != (tt.kind == "not-serving") {
				t.Errorf("%s with %v: got %d %s, Retry-After %q; want %d %s", path, tt.err, status, text, header.Get("Retry-After"), tt.status, tt.kind)
			}
		}
	}
}

// The reader learns which prefixes the caller may read.
func TestBoardsAskForTheCallersRights(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/top?index=a", "/v1/rank?index=a&counter=page:ab"} {
		f := &fakeReader{err: &reader.NoIndexError{Index: "a"}}
		s := ask(t, api.Services{Reader: f}, api.Config{})
		for name, prefix := range map[string]string{"pages": "page:", "shops": "shop:", "part": "page:a:1"} {
			surface{authtest.As(t, s, name, prefix, "page:ab")}.want(t, "GET", path, "", 404, "")
			if q := f.board; q.MayRead == nil || q.MayRead("") || q.MayRead("page:") != (name == "pages") || q.MayRead("shop:") != (name == "shops") || q.Caller != name {
				t.Errorf("%s as %s: the reader was asked for %+v", path, name, q)
			}
		}
		if s.want(t, "GET", path, "", 404, ""); f.board.MayRead != nil && !f.board.MayRead("") {
			t.Errorf("%s: a caller with all rights may not read everything", path)
		}
	}
}
