package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/reader"
)

// pages are so many counters that begin with page:, with totals of now.
func pages(n int) *fakeReader {
	f := newFakeOf(make(map[string]int64))
	f.live, f.pipeline = true, reader.Pipeline{Workers: 1}
	for i := range n {
		f.counters[fmt.Sprintf("page:%04d", i)] = int64(i)
	}
	return f
}

// A pageEvent is an event as a page reads it.
type pageEvent struct {
	Totals []struct {
		Counter string
		Total   int64
		Exists  bool
		Rate    *float64
	}
	Removed   []string
	Truncated bool
}

// text is the event in short: name=total, or name=total@rate, and -name for a removed counter.
func (e *pageEvent) text() string {
	var words []string
	for _, t := range e.Totals {
		word := fmt.Sprintf("%s=%d", strings.TrimPrefix(t.Counter, "page:"), t.Total)
		if !t.Exists {
			word += "?"
		}
		if t.Rate != nil {
			word += fmt.Sprintf("@%g", *t.Rate)
		}
		words = append(words, word)
	}
	for _, name := range e.Removed {
		words = append(words, "-"+strings.TrimPrefix(name, "page:"))
	}
	if e.Truncated {
		words = append(words, "...")
	}
	return strings.Join(words, " ")
}

// event is the next event. It skips comments, for a minute.
func (s *stream) event() *pageEvent {
	s.tb.Helper()
	block := s.next()
	for began := time.Now(); strings.HasPrefix(block, ":") && time.Since(began) < time.Minute; {
		block = s.next()
	}
	e := &pageEvent{}
	data, ok := strings.CutPrefix(block, "event: totals\ndata: ")
	if err := json.Unmarshal([]byte(data), e); !ok || err != nil {
		s.tb.Errorf("not an event with totals: %q, %v", block, err)
	}
	return e
}

func (s *stream) wantEvent(want string) {
	s.tb.Helper()
	if got := s.event().text(); got != want {
		s.tb.Errorf("got the event %q, want %q", got, want)
	}
}

// However many watch a prefix, with whatever limits and forms, their counters are read once a
// second, and their names are listed once in ten seconds.
func TestWatchersOfAPrefixShareReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(300)
		srv, _ := watched(t, f, api.Config{})
		streams := make([]*stream, 60)
		for i := range streams {
			form := []string{"", "&format=string", "&rates=true"}[i%3]
			streams[i] = srv.watch(t, fmt.Sprintf("/v1/watch?prefix=page:&limit=%d%s", 300-i, form))
			go func() { _, _ = io.Copy(io.Discard, streams[i].resp.Body) }()
		}
		time.Sleep(500 * time.Millisecond)
		if totals, lists := f.reads(); totals != 0 || lists != 1 {
			t.Errorf("the first events of %d watchers took %d reads and %d lists, want 0 and 1", len(streams), totals, lists)
		}
		time.Sleep(time.Minute)
		if totals, lists := f.reads(); totals != 54 || lists != 6 {
			t.Errorf("a minute took %d reads and %d lists, want 54 and 6", totals, lists)
		}
		other := srv.watch(t, "/v1/watch?prefix=page:00&limit=300")
		other.event()
		if totals, lists := f.reads(); totals > 1 || lists != 1 {
			t.Errorf("another prefix took %d reads and %d lists, want a list of its own", totals, lists)
		}
		for _, s := range append(streams, other) {
			s.resp.Body.Close()
		}
		synctest.Wait()
		f.reads()
		time.Sleep(time.Minute)
		if totals, lists := f.reads(); totals != 0 || lists != 0 {
			t.Errorf("a minute without watchers took %d reads and %d lists", totals, lists)
		}
	})
}

// A cache may have a total that is older than the one before.
func TestWatchNeverGoesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(2)
		srv, _ := watched(t, f, api.Config{})
		s := srv.watch(t, "/v1/watch?prefix=page:")
		s.wantEvent("0000=0 0001=1")
		f.set("page:0001", 5)
		s.wantEvent("0001=5")
		f.change(func() { f.counters["page:0001"], f.back = 4, 1500*time.Millisecond })
		time.Sleep(1500 * time.Millisecond) // a read whose totals are older than those before
		f.change(func() { f.counters["page:0001"], f.back = 6, 0 })
		s.wantEvent("0001=6")
	})
}

// A new counter is there within ten seconds, and so is the end of a deleted one.
func TestWatchPrefixFollowsTheList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(2)
		srv, _ := watched(t, f, api.Config{})
		s := srv.watch(t, "/v1/watch?prefix=page:")
		s.wantEvent("0000=0 0001=1")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		f.set("page:new", 7)
		s.wantEvent("new=7")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a new counter was there after %s, want at most 10s", took)
		}
		f.change(func() { delete(f.counters, "page:0000") })
		began = time.Now()
		s.wantEvent("0000=0?") // the next read
		if took := time.Since(began); took > time.Second {
			t.Errorf("a delete was seen after %s, want a second", took)
		}
		s.wantEvent("-0000") // the next list
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a deleted counter left after %s, want at most 10s", took)
		}
		f.set("page:0000", 1)
		s.wantEvent("0000=1")
	})
}

// A prefix without counters is a prefix that may get some. Only its names are read.
func TestWatchPrefixWithoutCounters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(0)
		srv, _ := watched(t, f, api.Config{})
		s := srv.watch(t, "/v1/watch?prefix=page:")
		s.wantEvent("")
		time.Sleep(9500 * time.Millisecond)
		if totals, lists := f.reads(); totals != 0 || lists != 1 {
			t.Errorf("no counters for 9.5 s took %d reads and %d lists, want 0 and 1", totals, lists)
		}
		f.set("page:a", 1)
		s.wantEvent("a=1")
	})
}

// Watchers of one prefix with different limits each see the first counters by name.
func TestWatchPrefixLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(0)
		for i, name := range []string{"b", "d", "f", "h"} {
			f.set("page:"+name, int64(i))
		}
		srv, _ := watched(t, f, api.Config{})
		two := srv.watch(t, "/v1/watch?prefix=page:&limit=2")
		two.wantEvent("b=0 d=1 ...")
		four := srv.watch(t, "/v1/watch?prefix=page:&limit=4")
		four.wantEvent("b=0 d=1 f=2 h=3")
		f.set("page:f", 9)
		four.wantEvent("f=9")
		f.set("page:c", 5) // pushes d beyond two, and h beyond four
		two.wantEvent("c=5 -d ...")
		four.wantEvent("c=5 -h ...")
		f.change(func() { delete(f.counters, "page:b"); delete(f.counters, "page:c") })
		two.wantEvent("b=0? c=0? ...")
		four.wantEvent("b=0? c=0? ...")
		two.wantEvent("d=1 f=9 -b -c ...")
		four.wantEvent("h=3 -b -c")
		four.resp.Body.Close()
		time.Sleep(11 * time.Second) // the list is shorter now
		f.set("page:f", 10)
		f.set("page:h", 10)
		two.wantEvent("f=10 ...")
	})
}

func TestWatchPrefixRates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(2)
		srv, _ := watched(t, f, api.Config{})
		plain := srv.watch(t, "/v1/watch?prefix=page:")
		s := srv.watch(t, "/v1/watch?prefix=page:&rates=true")
		if block := srv.watch(t, "/v1/watch?prefix=page:&format=string").next(); strings.Count(block, `"total":"`) != 2 {
			t.Errorf("got %s, want all totals as strings", block)
		}
		plain.wantEvent("0000=0 0001=1")
		s.wantEvent("0000=0 0001=1")
		s.wantEvent("0000=0@0 0001=1@0") // known after two reads
		f.set("page:0001", 26)
		s.wantEvent("0001=26@25")
		s.wantEvent("0001=26@0") // the total is the same, the rate is not
		f.set("page:0001", 20)
		s.wantEvent("0001=20@-6")
		plain.wantEvent("0001=26") // no event for rates
		plain.wantEvent("0001=20")
		s.wantEvent("0001=20@0")
		f.set("page:0000", math.MaxInt64)
		s.event()
		f.set("page:0000", math.MinInt64)
		s.wantEvent("0000=-9223372036854775808@-1.8446744073709552e+19")
		names := srv.watch(t, "/v1/watch?counter=page:0001&rates=true&interval=2s")
		names.wantEvent("0001=20")
		names.wantEvent("0001=20@0")
		f.set("page:0001", 23)
		names.wantEvent("0001=23@1.5")
	})
}

// A total that does not fit 64 bits has no rate, and neither has the first one after it.
func TestWatchRatesOfACounterThatOverflows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(2)
		srv, _ := watched(t, f, api.Config{})
		s := srv.watch(t, "/v1/watch?counter=page:0000&counter=page:0001&rates=true")
		s.wantEvent("0000=0 0001=1")
		s.wantEvent("0000=0@0 0001=1@0")
		f.change(func() { f.overflow["page:0001"] = true })
		s.wantEvent("0001=0")
		f.change(func() { f.overflow["page:0001"] = false })
		s.wantEvent("0001=1")
		s.wantEvent("0001=1@0")
	})
}

// A client that does not read costs neither the shared read nor other watchers anything. If it
// reads again in time, it gets the newest totals of all that changed meanwhile.
func TestSlowWatcherOfAPrefixGetsTheNewest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(3)
		srv, h := watched(t, f, api.Config{WriteTimeout: 5 * time.Second})
		slow, quick := srv.watch(t, "/v1/watch?prefix=page:"), srv.watch(t, "/v1/watch?prefix=page:")
		quick.wantEvent("0000=0 0001=1 0002=2")
		slow.wantEvent("0000=0 0001=1 0002=2")
		for i := range 4 { // the first of these events waits to be read
			f.set("page:0000", int64(10+i))
			f.set(fmt.Sprintf("page:%04d", 1+i/2), int64(20+i))
			began := time.Now()
			quick.event()
			if took := time.Since(began); took > time.Second {
				t.Errorf("beside a slow watcher an event took %s", took)
			}
		}
		if got := slow.event().text(); got != "0000=10 0001=20" {
			t.Errorf("the first event that waited is %q", got)
		}
		slow.wantEvent("0000=13 0001=21 0002=23")
		f.reads()
		for range 10 { // it reads no more
			f.change(func() { f.counters["page:0000"]++ })
			quick.event()
		}
		if totals, lists := f.reads(); totals+lists != 10 {
			t.Errorf("ten seconds beside a watcher that does not read: %d reads", totals+lists)
		}
		if n := h.Watchers(); n != 1 {
			t.Errorf("%d watchers are left, want the slow one dropped", n)
		}
	})
}

// A counter that leaves and comes back while a write waits is not removed.
func TestSlowWatcherOfACounterThatComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(2)
		srv, _ := watched(t, f, api.Config{WriteTimeout: time.Hour})
		s := srv.watch(t, "/v1/watch?prefix=page:")
		s.wantEvent("0000=0 0001=1")
		time.Sleep(5500 * time.Millisecond)
		f.set("page:0000", 5)
		time.Sleep(2 * time.Second) // the event waits
		f.change(func() { delete(f.counters, "page:0001") })
		time.Sleep(5 * time.Second) // the list at 10 s
		f.set("page:0001", 7)
		time.Sleep(8 * time.Second) // the list at 20 s
		s.wantEvent("0000=5")
		s.wantEvent("0001=7")
	})
}

// A watcher may go, and the server may end, while the first read is under way.
func TestWatchPrefixEndsBeforeItsFirstEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(3)
		f.held = make(chan struct{})
		srv, h := watched(t, f, api.Config{})
		conn, err := srv.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /v1/watch?prefix=page: HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		if n := h.Watchers(); n != 1 {
			t.Errorf("%d watchers wait, want 1", n)
		}
		conn.Close()
		synctest.Wait()
		if n := h.Watchers(); n != 0 {
			t.Errorf("%d watchers after the only one has gone", n)
		}
		status := make(chan int, 1)
		go func() { status <- srv.get(t, "GET", "/v1/watch?prefix=page:").StatusCode }()
		synctest.Wait()
		h.CloseStreams()
		if got := <-status; got != 503 {
			t.Errorf("a watcher that waits when the server ends got %d, want 503", got)
		}
	})
}

// A read that hangs, or fails, keeps the watchers: each gets a comment in time, and a problem.
func TestWatchPrefixOutlivesTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(2)
		srv, _ := watched(t, f, api.Config{KeepAlive: 4 * time.Second})
		s := srv.watch(t, "/v1/watch?prefix=page:")
		s.wantEvent("0000=0 0001=1")
		held := make(chan struct{})
		f.change(func() { f.held = held })
		for _, want := range []string{": keep-alive", "event: problem"} {
			began := time.Now()
			if got := s.next(); !strings.HasPrefix(got, want) {
				t.Errorf("while a read hangs: got %q, want %q", got, want)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("%s of silence, want at most 4s", took)
			}
		}
		f.set("page:0001", 3)
		close(held)
		s.wantEvent("0001=3")
		f.change(func() { f.err = errors.New("secret") })
		if got := s.next(); !strings.HasPrefix(got, "event: problem") || strings.Contains(got, "secret") {
			t.Errorf("a failed read sends %q", got)
		}
		for began := time.Now(); time.Since(began) < time.Minute; { // beats without a read do not make a watcher fall behind
			if got := s.next(); got != ": keep-alive" {
				t.Fatalf("a read that fails again sends %q, want comments", got)
			}
		}
		if res := srv.get(t, "GET", "/v1/watch?prefix=page:"); res.StatusCode != 500 {
			t.Errorf("a new watcher got %d, want the problem", res.StatusCode)
		}
		f.change(func() { f.err = nil })
		s.wantEvent("")
	})
}

func TestWatchPrefixLeavesOverflowedCountersOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(3)
		srv, _ := watched(t, f, api.Config{})
		s := srv.watch(t, "/v1/watch?prefix=page:")
		s.wantEvent("0000=0 0001=1 0002=2")
		f.change(func() { f.overflow["page:0001"] = true })
		s.wantEvent("-0001")
		f.set("page:0002", 3)
		s.wantEvent("0002=3")
		f.change(func() { f.overflow["page:0001"] = false })
		s.wantEvent("0001=1")
	})
}

// Counters without a total can be many, as deleted ones of an index, which stay. Few pages pass them.
func TestWatchPrefixPassesPagesWithoutTotals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(2000)
		for i := 3; i < 1990; i++ {
			f.overflow[fmt.Sprintf("page:%04d", i)] = true
		}
		srv, _ := watched(t, f, api.Config{})
		srv.watch(t, "/v1/watch?prefix=page:&limit=4").wantEvent("0000=0 0001=1 0002=2 1990=1990 ...")
		if _, lists := f.reads(); lists > 20 {
			t.Errorf("%d pages for 1,987 counters without totals, want at most 20", lists)
		}
		srv.watch(t, "/v1/watch?prefix=page:&limit=13").wantEvent("0000=0 0001=1 0002=2 1990=1990 1991=1991 1992=1992 1993=1993 1994=1994 1995=1995 1996=1996 1997=1997 1998=1998 1999=1999")
	})
}

// A token of several prefixes gets the counters of all of them, and no others.
func TestWatchPrefixOfALimitedToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(6)
		f.page = 2 // pages may be short
		h := serve(api.Services{Reader: f}, api.Config{})
		t.Cleanup(h.CloseStreams)
		srv := open(t, authtest.As(t, h, "x", "page:0001", "page:0004", "page:0005"))
		srv.watch(t, "/v1/watch?prefix=page:&limit=2").wantEvent("0001=1 0004=4 ...")
		s := srv.watch(t, "/v1/watch?prefix=page:")
		s.wantEvent("0001=1 0004=4 0005=5")
		srv.watch(t, "/v1/watch?prefix=page:0004").wantEvent("0004=4")
		all := open(t, h)
		all.watch(t, "/v1/watch?prefix=page:&limit=6").wantEvent("0000=0 0001=1 0002=2 0003=3 0004=4 0005=5")
		all.watch(t, "/v1/watch?prefix=page:&limit=5").wantEvent("0000=0 0001=1 0002=2 0003=3 0004=4 ...")
		f.set("page:0000", 9)
		f.set("page:0001", 9)
		s.wantEvent("0001=9")
	})
}

// The watched counters of a caller are bounded over all prefixes. Watchers of one prefix count them once.
func TestWatchedCountersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv, _ := watched(t, pages(10), api.Config{MaxWatched: 134})
		first := srv.watch(t, "/v1/watch?prefix=page:&limit=60")
		srv.watch(t, "/v1/watch?prefix=page:&limit=60")
		srv.watch(t, "/v1/watch?prefix=page:0&limit=40")
		wantRefused := func(path string) {
			res := srv.get(t, "GET", path)
			defer res.Body.Close()
			if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
				t.Errorf("%s beyond the bound: got %d, want 429 with Retry-After", path, res.StatusCode)
			}
		}
		for _, path := range []string{"/v1/watch?prefix=x&limit=1", "/v1/watch?counter=a", "/v1/watch?prefix=page:&limit=61"} {
			wantRefused(path)
		}
		srv.watch(t, "/v1/watch?prefix=page:&limit=10").event()
		first.resp.Body.Close()
		synctest.Wait()
		wantRefused("/v1/watch?counter=a") // another watcher has the prefix
	})
}

// A caller with a full share watches a prefix. Others can watch it too: they get a feed of their own, and share it.
func TestAFullShareKeepsNobodyFromAPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(3)
		h := serve(api.Services{Reader: f}, api.Config{MaxWatched: 134})
		t.Cleanup(h.CloseStreams)
		full, other := open(t, authtest.As(t, h, "full")), open(t, authtest.As(t, h, "other"))
		full.watch(t, "/v1/watch?prefix=page:&limit=1")
		full.watch(t, "/v1/watch?prefix=x&limit=98")
		if res := full.get(t, "GET", "/v1/watch?prefix=page:&limit=10"); res.StatusCode != 429 {
			t.Errorf("a caller with its share got %d, want 429", res.StatusCode)
		}
		s := other.watch(t, "/v1/watch?prefix=page:&limit=10")
		s.wantEvent("0000=0 0001=1 0002=2")
		f.reads()
		other.watch(t, "/v1/watch?prefix=page:&limit=5").event()
		if _, lists := f.reads(); lists != 0 {
			t.Errorf("the next watcher took %d lists, want none", lists)
		}
		f.set("page:0002", 9)
		s.wantEvent("0002=9")
	})
}

// A watcher that wants more counters of a prefix takes them from its own share, and later watchers join it.
func TestALargerLimitIsOfItsOwnShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(3)
		h := serve(api.Services{Reader: f}, api.Config{MaxWatched: 1000})
		t.Cleanup(h.CloseStreams)
		first, other := open(t, authtest.As(t, h, "first")), open(t, authtest.As(t, h, "other"))
		small := first.watch(t, "/v1/watch?prefix=page:&limit=1")
		large := other.watch(t, "/v1/watch?prefix=page:&limit=300")
		large.wantEvent("0000=0 0001=1 0002=2")
		first.watch(t, "/v1/watch?prefix=x&limit=500").event() // with 300 more it would have its share
		small.resp.Body.Close()
		synctest.Wait()
		f.reads()
		first.watch(t, "/v1/watch?prefix=page:&limit=300").wantEvent("0000=0 0001=1 0002=2")
		if _, lists := f.reads(); lists != 0 {
			t.Errorf("the next watcher took %d lists, want none", lists)
		}
		large.resp.Body.Close()
	})
}

// Places and counters of watchers that are gone, or were refused, are free again.
func TestWatchPrefixGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(10)
		srv, h := watched(t, f, api.Config{MaxWatchers: 1, MaxWatched: 67})
		for range 3 {
			s := srv.watch(t, "/v1/watch?prefix=page:&limit=50")
			s.event()
			s.resp.Body.Close()
			synctest.Wait()
			f.change(func() { f.err = errors.New("fails") })
			if status, _, _ := srv.call(t, "GET", "/v1/watch?prefix=page:&limit=50"); status != 500 {
				t.Errorf("got %d from a store that fails, want 500", status)
			}
			f.change(func() { f.err = nil })
		}
		if n := h.Watchers(); n != 0 {
			t.Errorf("%d places are taken, want none", n)
		}
	})
}

// A recorder keeps the sizes of the writes.
type recorder struct {
	*httptest.ResponseRecorder
	largest int
}

func (r *recorder) Write(p []byte) (int, error) {
	r.largest = max(r.largest, len(p))
	return r.ResponseRecorder.Write(p)
}
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

// A watcher holds a chunk of an event, not all of it: many may be slow at once.
func TestLargeEventsAreWrittenInChunks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := pages(0)
		for i := range 1000 {
			f.set(fmt.Sprintf("page:%s%04d", strings.Repeat("x", 480), i), 1)
		}
		h := serve(api.Services{Reader: f}, api.Config{})
		defer h.CloseStreams()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		r := &recorder{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(r, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/watch?prefix=page:&limit=1000", nil))
		if n := r.Body.Len(); n < 500_000 || strings.Count(r.Body.String(), `"counter"`) != 1000 {
			t.Fatalf("the event has %d bytes", n)
		}
		if r.largest > 20<<10 {
			t.Errorf("a chunk has %d bytes, want at most 20 KiB", r.largest)
		}
	})
}
