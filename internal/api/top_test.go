package api_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
)

// fakeBoards are the boards of a fakeReader.
type fakeBoards struct {
	mu    sync.Mutex
	err   error
	all   []board.Ranked
	over  []string
	reads int
	last  reader.BoardQuery
	n     int
}

func (b *fakeBoards) set(err error, all ...board.Ranked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.all = err, all
}

var boardScan = reader.Scan{CompleteAsOf: time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)}

func (f *fakeReader) Top(_ context.Context, q reader.TopQuery) (reader.Top, error) {
	b := &f.boards
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.n = q.BoardQuery, q.N
	b.reads++
	top := reader.Top{Scan: boardScan, Overflowed: b.over}
	for i, c := range b.all {
		top.Top = append(top.Top, reader.TopCounter{Ranked: c, Rank: i + 1})
	}
	top.CompleteAsOf = top.CompleteAsOf.Add(time.Duration(b.reads) * time.Second) // moves alone: no event
	return top, b.err
}

func (f *fakeReader) Rank(_ context.Context, q reader.BoardQuery, counter string) (reader.Rank, error) {
	b := &f.boards
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = q
	b.reads++
	at := slices.IndexFunc(b.all, func(c board.Ranked) bool { return c.Counter == counter })
	rank := reader.Rank{Scan: boardScan, Counter: counter, Of: len(b.all)}
	if at >= 0 {
		rank.Rank, rank.Total = at+1, b.all[at].Sum
	}
	return rank, b.err
}

func TestTop(t *testing.T) {
	t.Parallel()
	f := &fakeReader{}
	f.boards.set(nil, board.Ranked{Counter: `page:"a"`, Sum: 7}, board.Ranked{Counter: "page:b", Sum: -3})
	srv, _ := start(t, f, api.Config{})
	doc := apitest.Load(t)
	for _, tt := range []struct{ path, want string }{
		{"/v1/top?index=sites", `{"top":[{"counter":"page:\"a\"","total":7,"rank":1},{"counter":"page:b","total":-3,"rank":2}],` +
			`"complete_as_of":"2026-11-25T10:00:01.000000Z","partial":false}`},
		{"/v1/rank?index=sites&counter=page:b&format=string", `{"counter":"page:b","total":"-3","rank":2,"of":2,"complete_as_of":"2026-11-25T10:00:00.000000Z","partial":false}`},
		{"/v1/rank?index=sites&counter=x", `{"counter":"x","total":0,"rank":null,"of":2,"complete_as_of":"2026-11-25T10:00:00.000000Z","partial":false}`},
	} {
		status, text, header := call(t, http.MethodGet, srv.URL+tt.path, "")
		if status != 200 || text != tt.want {
			t.Errorf("%s: got %d\n%s\nwant\n%s", tt.path, status, text, tt.want)
		}
		path, _, _ := strings.Cut(tt.path, "?")
		doc.CheckAnswer(t, http.MethodGet, path, status, header, []byte(text))
	}
	f.boards.over = []string{`page:"c"`, "page:d"}
	status, text, header := call(t, http.MethodGet, srv.URL+"/v1/top?index=sites", "")
	if want := `"total":-3,"rank":2}],"overflowed":["page:\"c\"","page:d"],"complete_as_of":`; !strings.Contains(text, want) {
		t.Errorf("with counters without a sum: got %s, want %s", text, want)
	}
	doc.CheckAnswer(t, http.MethodGet, "/v1/top", status, header, []byte(text))
	call(t, http.MethodGet, srv.URL+"/v1/top?index=sites&n=7&of=groups&window=this-week&tz=Asia/Kolkata", "")
	if q := f.boards.last; f.boards.n != 7 || !q.Groups || q.Window.String() != "this-week Asia/Kolkata" || q.Index != "sites" {
		t.Errorf("the reader was asked for %+v", q)
	}
}

func TestTopRefuses(t *testing.T) {
	t.Parallel()
	f := &fakeReader{}
	srv, _ := start(t, f, api.Config{})
	for path, want := range map[string]string{
		"/v1/top?index=a&window=2h":               `"field":"window"`,
		"/v1/top?index=a&window=today&tz=Nowhere": `"field":"tz"`,
		"/v1/top?index=a&tz=UTC":                  `"field":"tz","limit":"with window today, this-week or this-month"`,
		"/v1/rank?index=a&counter=a&tz=UTC":       `"field":"tz","limit":"with window today, this-week or this-month"`,
		"/v1/top?index=a&window=&tz=":             `"field":"tz"`,
	} {
		if status, text, _ := call(t, http.MethodGet, srv.URL+path, ""); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want 400 with %s", path, status, text, want)
		}
	}
	doc := apitest.Load(t)
	for _, tt := range []struct {
		err    error
		status int
		kind   string
	}{
		{&reader.NoIndexError{Index: "a"}, 404, "no-index"},
		{&reader.NoWindowError{Index: "a", Window: "today", Rule: "'page:*=15m:400d'"}, 404, "no-series"},
		{&reader.NotServingError{Group: "=site:*", Index: "a"}, 409, "not-serving"},
		{reader.ErrNoBoards, 409, "no-boards"},
		{countmill.ErrUnavailable, 503, "unavailable"},
	} {
		f.boards.set(tt.err)
		for _, path := range []string{"/v1/top?index=a", "/v1/rank?index=a&counter=x"} {
			status, text, header := call(t, http.MethodGet, srv.URL+path, "")
			if status != tt.status || !strings.Contains(text, "urn:countmill:problem:"+tt.kind+`"`) {
				t.Errorf("%s with %v: got %d %s, want %d %s", path, tt.err, status, text, tt.status, tt.kind)
			}
			if got := header.Get("Retry-After"); tt.kind == "not-serving" && got != "5" {
				t.Errorf("%s: got Retry-After %q, want 5", path, got)
			}
			path, _, _ = strings.Cut(path, "?")
			doc.CheckAnswer(t, http.MethodGet, path, status, header, []byte(text))
		}
	}
}

// The reader learns which prefixes the caller may read.
func TestBoardsAskForTheCallersRights(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/top?index=a", "/v1/rank?index=a&counter=page:a"} {
		services := wholeServices()
		f := &fakeReader{}
		services.Reader = f
		h := serve(services, api.Config{})
		f.boards.set(&reader.NoIndexError{Index: "a"})
		for name, prefix := range map[string]string{"pages": "page:", "shops": "shop:", "part": "page:a:1"} {
			status, _ := as(t, authtest.As(t, h, name, prefix, "page:ab"), path+"b")
			q := f.boards.last
			if status != 404 || q.MayRead == nil || q.MayRead("") || q.MayRead("page:") != (name == "pages") || q.MayRead("shop:") != (name == "shops") || q.Caller != name {
				t.Errorf("%s as %s: got %d, and the reader was asked for %+v", path, name, status, q)
			}
		}
		if as(t, h, path); f.boards.last.MayRead != nil && !f.boards.last.MayRead("") {
			t.Errorf("%s: a caller with all rights may not read everything", path)
		}
	}
}
