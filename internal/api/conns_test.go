package api

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

const getRoot = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// askAgain sends a request on an open connection and wants an answer, after which the server
// knows that the connection waits.
func askAgain(t *testing.T, conn net.Conn, from *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, getRoot); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s, %v", resp.Status, err)
	}
	synctest.Wait()
}

// Idle connections give way, the longest idle one first; connections with a request under way
// do not.
func TestConnectionsThatWaitGiveWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		p := serveInMemory(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/busy" {
				entered <- struct{}{}
				<-release
			}
		}, ServerConfig{MaxConns: 4})
		_, busy := p.dial(t, "GET /busy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		<-entered
		_, fromSilent := p.dial(t, "")
		idle, fromIdle := p.dial(t, "")
		used, fromUsed := p.dial(t, "")
		askAgain(t, idle, fromIdle)
		askAgain(t, used, fromUsed)

		for i, gone := range []*bufio.Reader{fromSilent, fromIdle} {
			conn, from := p.dial(t, "")
			askAgain(t, conn, from)
			if _, err := gone.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("connection %d of those that waited longest is open beside 4 newer ones: %v", i, err)
			}
		}
		askAgain(t, used, fromUsed)
		release <- struct{}{}
		if _, err := http.ReadResponse(busy, nil); err != nil {
			t.Errorf("a request under way was cut: %v", err)
		}
	})
}

func TestConnectionsFitOpenFiles(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{0: 10_000, 1: 1, 256: 64, 1024: 424, 4096: 3496, 20_000: 10_000, 1 << 62: 10_000} {
		if got := defaultConns(files); got != want {
			t.Errorf("of %d open files %d may be connections, want %d", files, got, want)
		}
	}
}
