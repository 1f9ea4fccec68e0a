package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// A siege is a `countmill up` that hostile clients attack. Meanwhile a good client, with a new
// connection for each request, counts and reads.
type siege struct {
	*process
	t     *testing.T
	began memory
	calm  float64 // goroutines before
	conns []net.Conn

	stop   chan struct{}
	done   chan error // of the good clients
	good   *goodClient
	beside *goodClient // of another `countmill up` that nobody attacks
}

// A goodClient counts and reads.
type goodClient struct {
	of       *process
	accepted int64
	slowest  time.Duration
}

const (
	// siegeMemory is the most that `up` may take whatever clients do, and patience the most
	// that a good client may have to wait on a machine that is not busy otherwise:
	// docs/evidence/tests.md states both.
	siegeMemory = 512 << 20
	patience    = 5 * time.Second
)

func besiege(t *testing.T) *siege {
	t.Helper()
	longtest.Only(t, "builds countmill and maltreats it for many seconds")
	s := &siege{t: t}
	s.process = start(t, []string{"GOMEMLIMIT=", "GOGC="}, "up", "--data", t.TempDir()).ready(t)
	var err error
	if s.began, err = memoryOf(s.cmd.Process.Pid); err != nil {
		t.Skip(err)
	}
	s.calm = s.metric(t, "go_goroutines")
	t.Cleanup(s.leave)
	s.good = &goodClient{of: s.process}
	s.beside = &goodClient{of: start(t, nil, "up", "--data", t.TempDir()).ready(t)}
	s.stop, s.done = make(chan struct{}), make(chan error, 2)
	for _, c := range []*goodClient{s.good, s.beside} {
		go func() { s.done <- c.run(s.stop) }()
	}
	return s
}

// end stops the good clients.
func (s *siege) end() error {
	close(s.stop)
	return errors.Join(<-s.done, <-s.done)
}

// run counts and reads until it is stopped, and returns the first error.
func (c *goodClient) run(stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		began := time.Now()
		if status, _ := send(client, c.of.url, `{"counter":"good"}`, ""); status != http.StatusAccepted {
			return fmt.Errorf("a good increment was answered with %d after %s", status, time.Since(began))
		}
		c.accepted++
		got, err := c.of.ask("0s", "good")
		if err != nil || got.Totals[0].Total != c.accepted {
			return fmt.Errorf("a good client got %v, %w, want %d", got, err, c.accepted)
		}
		c.slowest = max(c.slowest, time.Since(began))
	}
}

// open makes a connection, which ends with the siege.
func (s *siege) open(text string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.conns = append(s.conns, conn)
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

func (s *siege) leave() {
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

// lift ends the siege. The good client was served all the time, limits were kept, and nothing is left
// behind.
func (s *siege) lift() {
	t := s.t
	t.Helper()
	if err := s.end(); err != nil {
		t.Error(err)
	}
	during, err := memoryOf(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	goroutines := s.metric(t, "go_goroutines")
	s.leave()
	took := until(t, 30*time.Second, "goroutines to end", func() bool { return s.metric(t, "go_goroutines") <= s.calm+20 })
	after, err := memoryOf(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d good increments, the slowest %s (%s elsewhere); %d MiB (%d before), %.0f goroutines (%.0f), %d files (%d, %d after), rest after %s",
		s.good.accepted, s.good.slowest.Round(time.Millisecond), s.beside.slowest.Round(time.Millisecond), during.most>>20, s.began.most>>20, goroutines, s.calm, during.files, s.began.files, after.files, took.Round(time.Millisecond))
	if limit := patience + 4*s.beside.slowest; s.good.accepted == 0 || s.good.slowest > limit {
		t.Errorf("the good client was served %d times, the slowest in %s, want at most %s", s.good.accepted, s.good.slowest, limit)
	}
	if during.most > siegeMemory {
		t.Errorf("it took %d MiB, want at most %d", during.most>>20, siegeMemory>>20)
	}
	if after.files > s.began.files+20 {
		t.Errorf("%d files are open, %d were before", after.files, s.began.files)
	}
}

// readAnswer reads one answer, with a deadline.
func readAnswer(conn net.Conn) (*http.Response, error) {
	_ = conn.SetReadDeadline(time.Now().Add(busy))
	return http.ReadResponse(bufio.NewReader(conn), nil)
}

const postHead = "POST /v1/increments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"

func TestSlowBodies(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	const body = 30 * time.Second // a body may take so long
	began := time.Now()
	for range 500 {
		s.open(postHead + "Content-Length: 1000\r\n\r\n")
	}
	for range 8 {
		for _, conn := range s.conns {
			if _, err := io.WriteString(conn, " "); err != nil && time.Since(began) < body {
				t.Fatalf("after less than the time for a body: %v", err)
			}
		}
		<-time.After(time.Second)
	}
	s.lift()
}

func TestManyIdleConnections(t *testing.T) {
	t.Parallel()
	const many = 11_000
	if most := openFiles(); most < many+2000 {
		t.Skipf("only %d files may be open", most)
	}
	s := besiege(t)
	healthz := "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for range many {
		s.open(healthz)
	}
	ended := 0
	for _, conn := range s.conns {
		if _, err := readAnswer(conn); err != nil {
			t.Fatalf("a request before the connection was idle: %v", err)
		}
	}
	<-time.After(3 * time.Second) // meanwhile they are idle, and good clients call
	for _, conn := range s.conns {
		if over(t, conn) {
			ended++
		}
	}
	t.Logf("%d connections, of which %d had to give way", many, ended)
	if ended < many-10_000 {
		t.Errorf("%d of %d connections gave way, want at least %d", ended, many, many-10_000)
	}
	before := s.metric(t, "countmill_increments_total")
	until(t, time.Second, "a good client to be served beside 10,000 idle connections", func() bool {
		return s.metric(t, "countmill_increments_total") > before
	})
	s.lift()
}

// over reports whether the other side has closed a connection whose data was all read.
func over(t *testing.T, conn net.Conn) (over bool) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		over = n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return over
}

func TestSlowReadersOfWatch(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	lines := make([]string, 1000) // an event of 600 KB
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"counter":"slow:%s%03d"}`, strings.Repeat("x", 490), i)
	}
	count := func() {
		if status, _ := send(client, s.url, strings.Join(lines, "\n"), ""); status != http.StatusAccepted {
			t.Errorf("counting 1,000 counters: got %d, want 202", status)
		}
	}
	count()
	const watchers = 100
	for range watchers {
		conn := s.open("")
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, "GET /v1/watch?prefix=slow:&limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	until(t, 30*time.Second, "watchers", func() bool { return s.metric(t, "go_goroutines") > s.calm+watchers })
	until(t, 90*time.Second, "those who do not read to be dropped", func() bool {
		count() // the system's buffers take some MiB of each connection
		return s.metric(t, "go_goroutines") < s.calm+watchers/10
	})
	s.lift()
}

func TestHugeHeadersAndEndlessBodies(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	var clients sync.WaitGroup
	huge := []byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")
	chunk := append([]byte("10000\r\n"), append(bytes.Repeat([]byte(" "), 1<<16), "\r\n"...)...)
	for range 20 {
		header, body := s.open(""), s.open(postHead+"Transfer-Encoding: chunked\r\n\r\n")
		clients.Go(func() {
			go func() { _, _ = header.Write(huge) }()
			if resp, err := readAnswer(header); err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("a header of 1 MiB: %v, %v, want 431", resp, err)
			}
		})
		clients.Go(func() {
			go func() {
				for {
					if _, err := body.Write(chunk); err != nil {
						return
					}
				}
			}()
			resp, err := readAnswer(body)
			if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge && resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("a body without an end: %v, %v, want 413, or 429 beside too many others", resp, err)
			}
		})
	}
	clients.Wait()
	s.lift()
}

// Interrupted requests count nothing, however much of them had arrived. Complete ones count once,
// whatever follows.
func TestCutAndGarbledRequests(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	line := `{"counter":"cut"}` + "\n"
	whole := fmt.Sprintf("Content-Length: %d\r\n\r\n", 20*len(line)) + strings.Repeat(line, 20)
	for n := 1; n < len(whole); n += 7 {
		conn := s.open(postHead + whole[:len(whole)-n])
		if n%2 == 0 {
			_ = conn.(*net.TCPConn).CloseWrite()
			continue
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset
		_ = conn.Close()
	}
	chunks := "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(line), line)
	for _, end := range []string{"", "0\r\n", "5\r\nab", "xyz\r\n", "-1\r\n\r\n", "ffffffffffffffff\r\n"} {
		_ = s.open(postHead + chunks + end).(*net.TCPConn).CloseWrite()
	}
	garbage := []string{"\x00\xff\x16\x03\x01", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00", 9),
		"POST /v1/increments HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
		"POST /v1/increments HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n"}
	good := postHead + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(`{"counter":"piped"}`), `{"counter":"piped"}`)
	for _, g := range garbage {
		s.pipe(good+good+g, 2)
		s.pipe(g, 0)
	}
	s.lift()
	if got, err := s.ask("0s", "cut", "piped"); err != nil || got.Totals[0].Total != 0 || got.Totals[1].Total != int64(2*len(garbage)) {
		t.Errorf("got %v, %v, want nothing of what was cut and %d of what was whole", got, err, 2*len(garbage))
	}
}

// pipe sends text at once and wants that many acknowledgements, then an error of 400 to 599 or the end.
func (s *siege) pipe(text string, accepted int) {
	s.t.Helper()
	conn := s.open(text)
	_ = conn.SetReadDeadline(time.Now().Add(busy))
	from := bufio.NewReader(conn)
	for n := range accepted {
		resp, err := http.ReadResponse(from, nil)
		if err != nil || resp.StatusCode != http.StatusAccepted {
			s.t.Errorf("answer %d of %q: %v, %v, want 202", n, text, resp, err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	resp, err := http.ReadResponse(from, nil)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || err == nil && resp.StatusCode < 400 {
		s.t.Errorf("the end of %q: %v, %v, want an error or the end of the connection", text, resp, err)
	}
}
