package postgres_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// An interceptor is between a store and PostgreSQL, and does one fault, at a statement. Other faults than these are the SQLSTATE of an
// error that the server answers in place of the statement.
type interceptor struct {
	target   string
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn // of clients
	fault  string
	before int // statements until the fault, this one included; 0 after it

	clock atomic.Int64 // microseconds that statements see in place of the server's clock, each a later one; 0 for the server's
}

const (
	cutBefore  = "cut-before"  // it arrives
	cutAfter   = "cut-after"   // it was done, and the rest never arrives
	cutAnswers = "cut-answers" // after all was done
	pooler     = "pooler"      // so too, and a pooler says that it has lost its server
	warning    = "warning"     // beside its answer, that the commit is perhaps not on a standby
)

// intercept listens until the test ends.
func intercept(t *testing.T, target string) *interceptor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &interceptor{target: target, listener: l}
	p.serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, client)
			p.mu.Unlock()
			p.serving.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.serving.Wait()
	})
	return p
}

// arm makes the fault come at the n-th statement from now on.
func (p *interceptor) arm(fault string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.before = fault, n
}

// disarm reports whether the fault has come.
func (p *interceptor) disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	came := p.before == 0
	p.before = 0
	return came
}

// next returns the fault of the next statement; none is empty.
func (p *interceptor) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before == 0 {
		return ""
	}
	if p.before--; p.before > 0 {
		return ""
	}
	return p.fault
}

// A session of a client is intercepted. Statements have numbers from 0.
type intercepted struct {
	*interceptor
	client, server net.Conn
	sent           atomic.Int64
	at             atomic.Int64 // the statement of the fault, once it is known
	fault          string
	ended          chan struct{} // by the server
}

func (p *interceptor) serve(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.target, 10*time.Second)
	if err != nil {
		return
	}
	c := &intercepted{interceptor: p, client: client, server: server, ended: make(chan struct{})}
	c.at.Store(-1)
	var both sync.WaitGroup
	for _, pass := range []func(){c.requests, c.answers} {
		both.Go(func() {
			pass()
			_ = client.Close()
			_ = server.Close()
		})
	}
	both.Wait()
}

// timed puts the clock into a statement.
func (p *interceptor) timed(m []byte) []byte {
	if p.clock.Load() > 0 {
		now := time.UnixMicro(p.clock.Add(1)).UTC().Format("timestamptz '2006-01-02 15:04:05.000000+00'")
		m = []byte(strings.NewReplacer("clock_timestamp()", now, "now()", now).Replace(string(m)))
		binary.BigEndian.PutUint32(m[1:], uint32(len(m)-1))
	}
	return m
}

// message reads a message, which is appended to its type.
func message(r io.Reader, m []byte) ([]byte, error) {
	head := m
	m = append(m, 0, 0, 0, 0)
	if _, err := io.ReadFull(r, m[len(head):]); err != nil {
		return nil, err
	}
	m = append(m, make([]byte, binary.BigEndian.Uint32(m[len(head):])-4)...)
	_, err := io.ReadFull(r, m[len(head)+4:])
	return m, err
}

func typed(r *bufio.Reader) ([]byte, error) {
	of, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	return message(r, []byte{of})
}

// requests passes the client's messages.
func (c *intercepted) requests() {
	from, to, replaced := bufio.NewReader(c.client), bufio.NewWriter(c.server), false
	m, err := message(from, nil) // that of the start has no type
	for ; err == nil; m, err = typed(from) {
		switch m[0] {
		case 'P': // a statement is Parse, Bind, Describe, Execute
			m = c.timed(m)
			fault := c.next()
			switch replaced = false; fault {
			case "":
			case cutBefore: // after the server has finished the statements before
				_ = to.Flush()
				_ = c.server.(*net.TCPConn).CloseWrite()
				<-c.ended
				return
			case cutAfter, cutAnswers, pooler, warning:
				c.fault = fault
				c.at.Store(c.sent.Load())
			case "57P01":
				m, replaced = parse("do $$ begin perform pg_terminate_backend(pg_backend_pid()), pg_sleep(60); end $$"), true
			default:
				m, replaced = parse("do $$ begin raise using errcode = '"+fault+"'; end $$"), true
			}
		case 'B':
			if replaced {
				m, _ = (&pgproto3.Bind{ResultFormatCodes: []int16{1}}).Encode(nil)
			}
		case 'E':
			if c.sent.Add(1); c.at.Load() >= 0 && c.fault == cutAfter {
				m, _ = (&pgproto3.Flush{}).Encode(m)
				_, _ = to.Write(m)
				_ = to.Flush()
				_, _ = io.Copy(io.Discard, from) // until the answer has come
				return
			}
		}
		if _, err = to.Write(m); err == nil && from.Buffered() == 0 {
			err = to.Flush()
		}
		if err != nil {
			return
		}
	}
}

func parse(sql string) []byte {
	m, _ := (&pgproto3.Parse{Query: sql}).Encode(nil)
	return m
}

// answers passes the server's messages.
func (c *intercepted) answers() {
	defer close(c.ended)
	from, to, done := bufio.NewReader(c.server), bufio.NewWriter(c.client), int64(0)
	defer to.Flush()
	for {
		if from.Buffered() == 0 {
			_ = to.Flush()
		}
		m, err := typed(from)
		if err != nil {
			return
		}
		ends := m[0] == 'C' || m[0] == 'E' || m[0] == 'Z'
		switch at := c.at.Load(); {
		case at < 0 || at != done:
		case c.fault == warning:
			if ends {
				c.at.Store(-1)
				notice, _ := (&pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "01000", Message: "canceled"}).Encode(nil)
				_, _ = to.Write(notice)
			}
		case ends && c.fault == cutAfter, m[0] == 'Z' && c.fault == cutAnswers:
			return
		case m[0] == 'Z':
			m, _ = (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08P01", Message: "server conn crashed?"}).Encode(nil)
			_, _ = to.Write(m)
			return
		default:
			continue
		}
		switch m[0] { // before the client goes on
		case 'C':
			done++
		case 'Z': // after an error the server skips statements
			done = c.sent.Load()
		}
		_, err = to.Write(m)
		if err != nil || m[0] == 'E' && c.at.Load() >= 0 && c.fault == cutAfter { // an earlier one has failed, and the client waits for more
			return
		}
	}
}
