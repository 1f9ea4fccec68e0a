package httpserver

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A request that is answered before it has arrived whole gets its answer at once, and its connection ends
// soon. If the rest follows at once, the connection is kept.
func TestAnswersDoNotWaitForTheRest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, token, method, path string
		want                      int
	}{
		{"no token", "", "POST", "/count", 401},
		{"unknown token", "eve", "POST", "/count", 401},
		{"no such path", "", "POST", "/nowhere", 404},
		{"wrong method", "", "DELETE", "/read", 405},
		{"no type", "alice", "POST", "/typed", 415},
		{"GET with a body", "", "GET", "/healthz", 200},
		{"GET with a body and a token", "alice", "GET", "/read", 200},
	} {
		for form, rest := range map[string]string{
			"length": halfBody, "chunks": "Transfer-Encoding: chunked\r\n\r\n4\r\n{\r\n", "long": "Content-Length: 10000000\r\n\r\n{",
			"continue": "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
		} {
			t.Run(tc.name+", "+form, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					visitor := newTestServer(t, true, 8).visitor(tc.token)
					began := time.Now()
					visitor.begins(tc.method, tc.path, rest)
					if got := visitor.reads(); got != tc.want || time.Since(began) > 0 {
						t.Errorf("got %d after %s, want %d at once", got, time.Since(began), tc.want)
					}
					if !visitor.over(lingering + time.Millisecond) {
						t.Errorf("the connection goes on %s after the answer", lingering)
					}
				})
			})
		}
	}
}

func TestRefusedRequestsThatArriveKeepTheirConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		visitor := newTestServer(t, true, 8).visitor("")
		visitor.begins("POST", "/count", "Content-Length: 9\r\n\r\n{")
		if got := visitor.reads(); got != 401 {
			t.Fatalf("got %d, want 401", got)
		}
		if _, err := io.WriteString(visitor, `"a": 12}`); err != nil {
			t.Fatal(err)
		}
		if got := visitor.asks("/healthz"); got != 200 {
			t.Errorf("the next request gets %d", got)
		}
	})
}

// An answer says that its connection ends if more comes than is read. A client whose system has taken the whole body would send
// its next request on it, and get no answer.
func TestAnswersSayThatTheirConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rest   string
		closes bool
	}{
		"short":  {halfBody, false},
		"long":   {"Content-Length: 1000000\r\n\r\n{", true},
		"chunks": {"Transfer-Encoding: chunked\r\n\r\n4\r\n{\r\n", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			visitor := newTestServer(t, true, 8).visitor("")
			visitor.begins("POST", "/count", tc.rest)
			resp, err := http.ReadResponse(visitor.from, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Close != tc.closes {
				t.Errorf("%s: the answer says that the connection ends: %t, want %t", name, resp.Close, tc.closes)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			if !visitor.over(lingering + time.Second) {
				t.Errorf("%s: the connection goes on", name)
			}
		})
	}
}

// countmill never reads the rest of an answered request as another request.
func TestTheRestIsNoRequest(t *testing.T) {
	t.Parallel()
	const hidden = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for rest, pause := range map[string]time.Duration{
		"Content-Length: 300000\r\n\r\n" + hidden:                 0,
		"Content-Length: 100\r\n\r\n" + hidden:                    2 * lingering,
		"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefg" + hidden: 0, // a bad chunk
	} {
		synctest.Test(t, func(t *testing.T) {
			visitor := newTestServer(t, true, 8).visitor("")
			visitor.begins("POST", "/count", rest)
			if got := visitor.reads(); got != 401 {
				t.Fatalf("got %d, want 401", got)
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				time.Sleep(pause)
				for err := error(nil); err == nil; {
					_, err = io.WriteString(visitor, hidden)
				}
			}()
			defer func() { <-sent }()
			if resp, err := http.ReadResponse(visitor.from, nil); err == nil {
				t.Errorf("the rest of %.50q is answered with %s", rest, resp.Status)
			}
		})
	}
}

// A process that stops waits a moment for requests that have not arrived whole. Nothing of them was done.
func TestShutdownDoesNotWaitForBodies(t *testing.T) {
	eachTestServer(t, 8, func(t *testing.T, v *testServer, alice, bob string) {
		v.visitor("")                                             // silent
		v.visitor("").begins("GET", "/healthz", "X-Header: part") // no whole header
		half, refused, slow := v.visitor(alice), v.visitor("eve"), v.visitor(bob)
		half.begins("POST", "/count", halfBody)
		refused.begins("POST", "/nowhere", halfBody)
		slow.begins("POST", "/count", "Content-Length: 3\r\n\r\n{")
		if got := refused.reads(); got != 404 {
			t.Errorf("a request without a path gets %d", got)
		}
		v.visitor("").begins("GET", "/healthz", noBody) // it does not read its answer
		began := time.Now()
		v.srv.HurryBodies()
		stopped := make(chan error, 1)
		go func() { stopped <- v.srv.Shutdown(t.Context()) }()
		time.Sleep(hurry / 2)
		if _, err := io.WriteString(slow, `1}`); err != nil {
			t.Fatal(err)
		}
		if got := slow.reads(); got != 200 {
			t.Errorf("a request that arrives a moment later gets %d", got)
		}
		if got := half.reads(); got != 503 {
			t.Errorf("half a request gets %d, want 503", got)
		}
		if err := <-stopped; err != nil || time.Since(began) > 2*hurry {
			t.Errorf("the server stops after %s: %v", time.Since(began), err)
		}
	})
}
