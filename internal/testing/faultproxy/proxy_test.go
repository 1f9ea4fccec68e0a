package faultproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/faultproxy"
	"github.com/countmill/countmill/internal/testing/longtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An echo answers every line with the same line, and reports how its connections ended.
type echo struct {
	host  string
	ended chan error // nil for an orderly end
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{host: l.Addr().String(), ended: make(chan error, 100)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				_, err := io.Copy(c, c)
				e.ended <- err
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return e
}

// patience is how long something may take that must happen: longer than any machine needs.
const patience = 2 * time.Minute

// A talker is a client of an echo.
type talker struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func talk(t *testing.T, host string) *talker {
	t.Helper()
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &talker{t, c, bufio.NewReader(c)}
}

func (k *talker) say(text string) {
	k.t.Helper()
	if _, err := io.WriteString(k, text+"\n"); err != nil {
		k.t.Fatalf("say %q: %v", text, err)
	}
}

func (k *talker) hear(want string) {
	k.t.Helper()
	_ = k.SetReadDeadline(time.Now().Add(patience))
	got, err := k.lines.ReadString('\n')
	if err != nil || strings.TrimSpace(got) != want {
		k.t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// quiet wants nothing to come for a while.
func (k *talker) quiet() {
	k.t.Helper()
	_ = k.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if got, err := k.lines.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		k.t.Fatalf("heard %q, %v; want silence", got, err)
	}
}

func (k *talker) isReset() {
	k.t.Helper()
	_ = k.SetDeadline(time.Now().Add(patience))
	_, err := k.lines.ReadString('\n')
	if !errors.Is(err, syscall.ECONNRESET) {
		k.t.Fatalf("got %v, want a reset", err)
	}
}

// refuses wants a new connection to be reset, which may be before Dial has returned.
func refuses(t *testing.T, p *faultproxy.Proxy) {
	t.Helper()
	c, err := net.DialTimeout("tcp", p.Host(), patience)
	if err == nil {
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection: got %v, want a reset", err)
	}
}

func (e *echo) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-e.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the server's connection did not end")
	}
	return nil
}

// start starts a proxy before an echo, with a talker that was heard.
func start(t *testing.T) (*faultproxy.Proxy, *echo, *talker) {
	t.Helper()
	e := newEcho(t)
	p := faultproxy.Start(t, e.host)
	k := talk(t, p.Host())
	k.say("one")
	k.hear("one")
	return p, e, k
}

func TestPasses(t *testing.T) {
	t.Parallel()
	p, e, a := start(t)
	b := talk(t, p.Host())
	a.say("two")
	b.say("three")
	b.hear("three")
	a.hear("two")
	if err := a.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = a.SetReadDeadline(time.Now().Add(patience))
	if _, err := a.lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after half-close: got %v, want EOF", err)
	}
	if err := e.end(t); err != nil {
		t.Errorf("the server saw %v, want an orderly end", err)
	}
	if got := p.Accepted(); got != 2 {
		t.Errorf("got %d accepted, want 2", got)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	p, e, k := start(t)
	p.Cut()
	k.isReset()
	if err := e.end(t); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v, want a reset", err)
	}
	refuses(t, p)
	if got := p.Accepted(); got != 2 {
		t.Errorf("got %d accepted, want 2", got)
	}
	p.Heal()
	again := talk(t, p.Host())
	again.say("two")
	again.hear("two")
}

func TestHang(t *testing.T) {
	t.Parallel()
	p, e, old := start(t)
	p.Hang()
	old.say("two")
	old.quiet()
	young := talk(t, p.Host())
	young.say("three")
	young.quiet()
	select {
	case err := <-e.ended:
		t.Fatalf("a connection of the server ended: %v", err)
	default:
	}
	p.Heal()
	old.hear("two")
	young.hear("three")
	p.Hang()
	old.say("four")
	p.Cut() // is not held up
	old.isReset()
}

func TestOrphan(t *testing.T) {
	t.Parallel()
	p, e, k := start(t)
	p.Orphan()
	_ = e.end(t)
	k.say("two")
	k.quiet()
	young := talk(t, p.Host())
	young.say("three")
	young.hear("three")
	p.Heal()
	k.say("four")
	k.quiet()
}

func TestDelay(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "measures time")
	p, _, k := start(t)
	const delay, lines = 200 * time.Millisecond, 200
	p.Delay(delay)
	began := time.Now()
	for range lines { // together; one after the other they would take more than 40 s
		k.say("two")
	}
	for range lines {
		k.hear("two")
	}
	if took := time.Since(began); took < 2*delay || took > lines*delay {
		t.Errorf("round trips together took %s, want %s and what the machine takes", took, 2*delay)
	}
	p.Heal()
	for deadline := time.Now().Add(patience); ; { // a delayed round trip is never as quick, a busy machine may have a few that are not
		began = time.Now()
		k.say("three")
		k.hear("three")
		took := time.Since(began)
		if took < delay {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("healed, each round trip takes %s or so", took)
		}
	}
}

// A reset of one side reaches the other as one.
func TestResetPasses(t *testing.T) {
	t.Parallel()
	_, e, k := start(t)
	_ = k.Conn.(*net.TCPConn).SetLinger(0)
	_ = k.Close()
	if err := e.end(t); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v, want a reset", err)
	}
}
