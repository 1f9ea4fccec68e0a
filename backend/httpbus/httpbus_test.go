package httpbus_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// Package app opens Google's libraries too, and the census library starts a goroutine that it never ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// A server answers batches. It needs no network, so that time can be virtual.
type server struct {
	mu     sync.Mutex
	answer func(try int, r *http.Request) (*http.Response, error)
	tries  int
	at     []time.Time
	bodies []string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	try := s.tries
	s.tries++
	s.at, s.bodies = append(s.at, time.Now()), append(s.bodies, string(body))
	s.mu.Unlock()
	return s.answer(try, r)
}

func says(status int, text string, header ...string) *http.Response {
	r := &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text)), Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func open(t *testing.T, s http.RoundTripper, options ...httpbus.Option) *httpbus.Bus {
	t.Helper()
	b, err := httpbus.Open("http://127.0.0.1:1/", append(options, httpbus.WithHTTPClient(&http.Client{Transport: s}))...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// publishing opens a bus with a publisher.
func publishing(t *testing.T, s http.RoundTripper, linger time.Duration) (*httpbus.Bus, *publisher.Publisher) {
	t.Helper()
	bus := open(t, s)
	p, err := publisher.New(bus, publisher.Config{Linger: linger})
	if err != nil {
		t.Fatal(err)
	}
	return bus, p
}

// bubble runs a test in virtual time, in a year in which clocks are right.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest))
		f(t)
	})
}

func part(n int) wire.Part {
	p := wire.Part{Entries: []wire.Entry{{Counter: "a", Delta: 1}}}
	p.ID[0] = 0x10
	binary.BigEndian.PutUint64(p.ID[8:], uint64(n))
	return p
}

// payload is a batch of at least size bytes, but for the bytes of a part.
func payload(n, size int) []byte {
	b := wire.Batch{Time: time.Now(), Flush: wire.FlushID{1}, Number: n, Parts: []wire.Part{part(n)}}
	for length := 64 + wire.SizePart(&b.Parts[0]); length < size; {
		p := part(n + len(b.Parts)<<32)
		if length += wire.SizePart(&p); length >= size {
			break
		}
		b.Parts = append(b.Parts, p)
	}
	return wire.Append(nil, &b)
}

// The bus holds on every answer but 202: nothing is dropped, Ready says why, the same bytes come again,
// and the waits are at most 30 s.
func TestHolds(t *testing.T) {
	t.Parallel()
	broken := func(int, *http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }
	for name, answer := range map[string]func(int, *http.Request) (*http.Response, error){
		"broken": broken, "redirect": answers(302), "200": answers(200), "not JSON": accepts("x"), "202 of another program": accepts("{}"), "null": accepts("null"),
		"400": answers(400), "401": answers(401), "403": answers(403), "404": answers(404), "408": answers(408), "413": answers(413), "415": answers(415),
		"422": answers(422), "429": answers(429), "500": answers(500), "502": answers(502), "503": answers(503), "504": answers(504), "507": answers(507),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const tries = 12
				s := &server{}
				s.answer = func(try int, r *http.Request) (*http.Response, error) {
					if try < tries {
						return answer(try, r)
					}
					return says(202, `{"parts":1}`), nil
				}
				bus, p := publishing(t, s, -1)
				done := make(chan error, 1)
				go func() {
					_, err := p.Publish(t.Context(), countmill.Increment{Counter: "a", Delta: 1})
					done <- err
				}()
				time.Sleep(4 * time.Second)
				synctest.Wait()
				if bus.Ready() == nil || p.Ready() == nil {
					t.Errorf("Ready: got %v from the bus and %v from the publisher, want the reason", bus.Ready(), p.Ready())
				}
				if err := <-done; err != nil {
					t.Errorf("Publish: got %v", err)
				}
				if err := errors.Join(bus.Ready(), p.Ready(), p.Close(t.Context()), bus.Close()); err != nil {
					t.Error(err)
				}
				checkTries(t, s, tries+1)
			})
		})
	}
}

func answers(status int) func(int, *http.Request) (*http.Response, error) {
	return func(int, *http.Request) (*http.Response, error) {
		return says(status, `{"type":"urn:countmill:problem:some-word","detail":"some reason"}`), nil
	}
}

func accepts(text string) func(int, *http.Request) (*http.Response, error) {
	return func(int, *http.Request) (*http.Response, error) { return says(202, text), nil }
}

// checkTries checks that all tries have the same bytes, and no two are more than 30 s apart.
func checkTries(t *testing.T, s *server, want int) {
	t.Helper()
	if s.tries != want {
		t.Errorf("got %d tries, want %d", s.tries, want)
	}
	for i := 1; i < len(s.at); i++ {
		if s.bodies[i] != s.bodies[0] {
			t.Errorf("try %d has other bytes", i)
		}
		if d := s.at[i].Sub(s.at[i-1]); d > 30*time.Second {
			t.Errorf("try %d came after %s, want 30s at most", i, d)
		}
	}
}

// A person must act: the waits grow. Retry-After is obeyed, up to 30 s.
func TestWaits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status     int
		retryAfter string
		least      []time.Duration // before each repeat
	}{
		{401, "", []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}},
		{429, "7", []time.Duration{7 * time.Second, 7 * time.Second}},
		{503, "3600", []time.Duration{30 * time.Second, 30 * time.Second}},
	} {
		t.Run(fmt.Sprint(tc.status), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &server{}
				s.answer = func(try int, _ *http.Request) (*http.Response, error) {
					if try < len(tc.least) {
						return says(tc.status, "", "Retry-After", tc.retryAfter), nil
					}
					return says(202, `{"parts":1}`), nil
				}
				bus, p := publishing(t, s, -1)
				if _, err := p.Publish(t.Context(), countmill.Increment{Counter: "a", Delta: 1}); err != nil {
					t.Error(err)
				}
				for i, least := range tc.least {
					if d := s.at[i+1].Sub(s.at[i]); d < least || d > 30*time.Second {
						t.Errorf("repeat %d came after %s, want from %s to 30s", i+1, d, least)
					}
				}
				if err := errors.Join(p.Close(t.Context()), bus.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A batch beyond the window may wait for ever, and leaves its slot to others. All other batches keep theirs.
func TestABatchBeyondTheWindowWaitsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for word, alone := range map[string]bool{"clock-skew": true, "invalid": false} {
			bus := open(t, &server{answer: func(int, *http.Request) (*http.Response, error) {
				return says(400, `{"type":"urn:countmill:problem:`+word+`"}`), nil
			}})
			held, ok := errors.AsType[*wire.HeldError](bus.Publish("", message.NewMessage("m", payload(1, 0))))
			if !ok || held.Alone != alone {
				t.Errorf("%s: got %+v, want it held, alone: %t", word, held, alone)
			}
			_ = bus.Close()
		}
	})
}

// All batches of a publisher with a wrong clock wait alone. When it is repaired they are counted, although the bus knows as many as it can.
func TestBatchesOfAWrongClockAreCountedLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var repaired atomic.Bool
		bus, p := publishing(t, &server{answer: func(int, *http.Request) (*http.Response, error) {
			if !repaired.Load() {
				return says(400, `{"type":"urn:countmill:problem:clock-skew"}`), nil
			}
			return says(202, `{"parts":1}`), nil
		}}, -1)
		const all = 4096 + 20
		for n := range all {
			if err := p.Add("a", 1); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // each leaves in a batch of its own, if it can
			if n >= all-20 {
				time.Sleep(3 * time.Second) // beside others in a slot, a batch waits for 2 s
			}
		}
		repaired.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := errors.Join(p.Close(ctx), bus.Close()); err != nil {
			t.Error(err)
		}
		if got := p.Stats().Durable; got != all {
			t.Errorf("%d of %d increments were counted", got, all)
		}
	})
}

// An answer with conflicts fails the calls concerned, and no others.
func TestConflictsAreSettledByPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		s.answer = func(int, *http.Request) (*http.Response, error) {
			b, err := wire.Decode([]byte(s.bodies[0]))
			if err != nil {
				t.Error(err)
			}
			var conflicts []string
			for i, p := range b.Parts {
				if p.Event == "x" || p.Kind == wire.Head && p.Key.Key == "taken" {
					conflicts = append(conflicts, fmt.Sprintf(`{"part":%d,"reason":"id-reused"}`, i))
				}
				if p.Event == "late" || p.Kind == wire.Head && p.Key.Key == "late" {
					conflicts = append(conflicts, fmt.Sprintf(`{"part":%d,"reason":"expired"}`, i))
				}
			}
			return says(202, `{"parts":9,"conflicts":[`+strings.Join(conflicts, ",")+`],"receipt":"later"}`), nil
		}
		bus, p := publishing(t, s, time.Second)
		inc := func(id string) countmill.Increment { return countmill.Increment{Counter: "a", Delta: 1, ID: id} }
		calls := []struct {
			send func() (publisher.Sent, error)
			want error
		}{
			{func() (publisher.Sent, error) { return p.Publish(t.Context(), inc(""), inc("x")) }, countmill.ErrIDsReused},
			{func() (publisher.Sent, error) { return p.Publish(t.Context(), inc(""), inc("y")) }, nil},
			{func() (publisher.Sent, error) { return p.PublishKeyed(t.Context(), "", "taken", inc("")) }, countmill.ErrConflict},
			{func() (publisher.Sent, error) { return p.PublishKeyed(t.Context(), "", "free", inc("")) }, nil},
			// An earlier try of an expired part may have been counted, so nothing is certain.
			{func() (publisher.Sent, error) { return p.Publish(t.Context(), inc(""), inc("late")) }, countmill.ErrOutcomeUnknown},
			{func() (publisher.Sent, error) { return p.Publish(t.Context(), inc("x"), inc("late")) }, countmill.ErrOutcomeUnknown},
			{func() (publisher.Sent, error) { return p.PublishKeyed(t.Context(), "", "late", inc("")) }, countmill.ErrOutcomeUnknown},
		}
		var all sync.WaitGroup
		for i, c := range calls {
			all.Go(func() {
				_, err := c.send()
				for _, e := range []error{countmill.ErrIDsReused, countmill.ErrConflict, countmill.ErrOutcomeUnknown} {
					if errors.Is(err, e) != (c.want == e) || (err == nil) != (c.want == nil) {
						t.Errorf("call %d: got %v, want %v", i, err, c.want)
					}
				}
			})
		}
		all.Wait()
		if s.tries != 1 {
			t.Errorf("got %d batches, want one that all calls share", s.tries)
		}
		if err := errors.Join(p.Close(t.Context()), bus.Close()); err != nil {
			t.Error(err)
		}
	})
}

// The publisher returns the server's answer on how to read increments back. A receipt that it cannot
// read, of a newer server, is none.
func TestReceiptsOfTheServer(t *testing.T) {
	t.Parallel()
	receipt := wire.Receipt{Time: time.UnixMicro(1_800_000_000_000_000).UTC(), Spans: []wire.Span{{Flush: wire.FlushHash{9}, First: 4, Last: 4}}}
	asOf := time.UnixMicro(1_800_000_000_123_456)
	for said, want := range map[string]publisher.Sent{
		`"receipt":"` + receipt.String() + `"`:                    {Receipt: receipt},
		`"counted_as_of":"` + asOf.Format(time.RFC3339Nano) + `"`: {Counted: true, CountedAsOf: asOf},
		`"receipt":"of a newer version"`:                          {},
		`"conflicts":[]`:                                          {},
	} {
		t.Run(said, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &server{answer: func(int, *http.Request) (*http.Response, error) { return says(202, `{"parts":1,`+said+`}`), nil }}
				bus, p := publishing(t, s, -1)
				got, err := p.Publish(t.Context(), countmill.Increment{Counter: "a", Delta: 1})
				if err != nil || !slices.Equal(got.Receipt.Spans, want.Receipt.Spans) || got.Counted != want.Counted || !got.CountedAsOf.Equal(want.CountedAsOf) {
					t.Errorf("after %s: got %+v (%v), want %+v", said, got, err, want)
				}
				if err := errors.Join(p.Close(t.Context()), bus.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An answer about a part that the batch does not have does not count.
func TestAnswerAboutAnotherBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bus := open(t, &server{answer: func(int, *http.Request) (*http.Response, error) {
			return says(202, `{"parts":1,"conflicts":[{"part":1}]}`), nil
		}})
		if err := bus.Publish("", message.NewMessage("m", payload(1, 0))); err == nil || errors.Is(err, countmill.ErrClosed) {
			t.Errorf("got %v, want an error after which the batch is sent again", err)
		}
		if err := bus.Close(); !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("Close: got %v, want ErrOutcomeUnknown", err)
		}
	})
}

// Close alone loses batches, and reports the batches that the server may have.
func TestCloseReportsUnknownOutcomes(t *testing.T) {
	t.Parallel()
	silent := func(_ int, r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	type of struct {
		answer  func(int, *http.Request) (*http.Response, error)
		unknown bool
	}
	all := map[string]of{"under way": {silent, true}, "202 of another program": {accepts("{}"), true}}
	for _, status := range []int{302, 400, 401, 404, 408, 429, 500, 502, 503, 504, 507} {
		all[fmt.Sprint(status)] = of{answers(status), status == 500 || status == 502 || status == 504}
		all[fmt.Sprint(status, " of a proxy")] = of{func(int, *http.Request) (*http.Response, error) {
			return says(status, `{"type":"urn:proxy:problem:unavailable"}`), nil
		}, true}
	}
	delete(all, "302") // never of a countmill
	for name, tc := range all {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				bus, p := publishing(t, connected{&server{answer: tc.answer}}, -1)
				if err := p.Add("a", 3); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := p.Close(ctx); !errors.Is(err, countmill.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "1 increments") {
					t.Errorf("closing the publisher: got %v", err)
				}
				synctest.Wait()
				if err := bus.Close(); err == nil || errors.Is(err, countmill.ErrOutcomeUnknown) != tc.unknown || !strings.Contains(err.Error(), "1 batches") {
					t.Errorf("Close: got %v, want an error with 1 batch, of unknown outcome: %t", err, tc.unknown)
				}
				if err := errors.Join(bus.Close()); err != nil {
					t.Errorf("the second Close: %v", err)
				}
				if err := bus.Ready(); !errors.Is(err, countmill.ErrClosed) {
					t.Errorf("Ready after Close: got %v", err)
				}
			})
		})
	}
}

// connected reports a connection, as a real transport does.
type connected struct{ http.RoundTripper }

func (c connected) RoundTrip(r *http.Request) (*http.Response, error) {
	gotConn(r)
	return c.RoundTripper.RoundTrip(r)
}

// The number of batches that may be counted is exact, however often each was tried. Beyond the bound no batch is sent.
func TestManyBatchesAreHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const most = 4096
		s := &server{answer: answers(504)}
		bus := open(t, s)
		send := func(n int) error { return bus.Publish("", message.NewMessage(fmt.Sprint(n), payload(n, 0))) }
		for range 2 {
			for n := range most + 10 {
				if err := send(n); err == nil {
					t.Fatalf("batch %d was taken", n)
				}
			}
		}
		if s.tries != 2*most {
			t.Errorf("%d batches were sent, want %d: the others have no room", s.tries, 2*most)
		}
		s.answer = func(int, *http.Request) (*http.Response, error) { return says(202, `{"parts":1}`), nil }
		for n := range most - 1 {
			if err := send(n); err != nil {
				t.Fatalf("batch %d: %v", n, err)
			}
		}
		if err := send(most + 5); err != nil {
			t.Errorf("a batch with room: %v", err)
		}
		if err := bus.Close(); !errors.Is(err, countmill.ErrOutcomeUnknown) || !strings.Contains(err.Error(), " 1 batches;") {
			t.Errorf("Close: got %v, want 1 batch of unknown outcome", err)
		}
	})
}

// Every call has a time-out, the token source included.
func TestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		for _, bus := range []*httpbus.Bus{
			open(t, &server{}, httpbus.WithTimeout(time.Minute), httpbus.WithTokenSource(source)),
			open(t, &server{answer: func(_ int, r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}}, httpbus.WithTimeout(time.Minute)),
		} {
			began := time.Now()
			err := bus.Publish("", message.NewMessage("m", payload(1, 0)))
			if took := time.Since(began); took != time.Minute || err == nil {
				t.Errorf("got %v after %s, want an error after 1m", err, took)
			}
			_ = bus.Close()
		}
	})
}

// A token is asked for before each call.
func TestTokenSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		s := &server{answer: func(try int, r *http.Request) (*http.Response, error) {
			if got, want := r.Header.Get("Authorization"), fmt.Sprint("Bearer t", try+1); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			return says(202, `{"parts":1}`), nil
		}}
		bus := open(t, s, httpbus.WithTokenSource(func(context.Context) (string, error) {
			n++
			return fmt.Sprint("t", n), nil
		}))
		for i := range 3 {
			if err := bus.Publish("", message.NewMessage("m", payload(i, 0))); err != nil {
				t.Error(err)
			}
		}
		_ = bus.Close()
	})
}

// An answer without an end takes no more memory than its bound.
func TestAnswerIsBounded(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		w.WriteHeader(http.StatusAccepted)
		for {
			if _, err := io.WriteString(w, strings.Repeat(" ", 64<<10)); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	bus, err := httpbus.Open(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Publish("", message.NewMessage("m", payload(1, 0))); err == nil || !strings.Contains(err.Error(), "4194304 bytes") {
		t.Errorf("got %v", err)
	}
	<-ended
	_ = bus.Close()
}

// Redirects are not followed: a redirected POST would be a GET elsewhere, with the token.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/under/v1/batches" {
			t.Errorf("got %s %s", r.Method, r.URL)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	bus, err := httpbus.Open(srv.URL + "/under/")
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Publish("", message.NewMessage("m", payload(1, 0))); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("got %v, want the status", err)
	}
	_ = bus.Close()
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		address string
		options []httpbus.Option
		want    string
	}{
		{"localhost:8080", nil, "must be http://"},
		{"ftp://a", nil, "must be http://"},
		{"http://a/?x=1", nil, "must be http://"},
		{"http://u:p@a", nil, "must be http://"},
		{"http://a", []httpbus.Option{httpbus.WithToken("x")}, "others can read it"},
		{"http://a", []httpbus.Option{httpbus.WithTimeout(-1)}, "above 0"},
		{"http://a", []httpbus.Option{httpbus.WithToken("x"), httpbus.WithInsecure()}, ""},
		{"https://a/b", []httpbus.Option{httpbus.WithToken("x")}, ""},
		{"http://127.0.0.1:1", []httpbus.Option{httpbus.WithToken("x")}, ""},
	} {
		bus, err := httpbus.Open(tc.address, tc.options...)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", tc.address, err, tc.want)
		}
		if bus != nil {
			_ = bus.Close()
		}
	}
}
