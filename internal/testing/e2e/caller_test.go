package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// A caller posts increments on a connection of its own, one request after the other. It is the smallest
// possible HTTP client: any CPU time that it uses is missing for the process under test.
type caller struct {
	conn     net.Conn
	in       *bufio.Reader
	answered time.Time
}

// A reply is the part of an answer that callers need.
type reply struct {
	status int
	again  bool // it has a Retry-After
	last   bool // on its connection
}

// posting returns the bytes of a request that posts body to the process at url.
func posting(url, body string) []byte {
	return fmt.Appendf(nil, "POST /v1/increments HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s",
		strings.TrimPrefix(url, "http://"), len(body), body)
}

// call connects to the process at url.
func call(url string) (*caller, error) {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 30*time.Second)
	if err != nil {
		return nil, err
	}
	return &caller{conn: conn, in: bufio.NewReaderSize(conn, 1<<10)}, nil
}

// post sends a request and waits for its answer. After an error the caller is unusable, and the outcome
// of the request is unknown.
func (c *caller) post(request []byte) (reply, error) {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return reply{}, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return reply{}, err
	}
	a, err := readReply(c.in)
	c.answered = time.Now()
	return a, err
}

// readReply reads one answer to its end. The answer must have a length, as countmill's answers do.
func readReply(in *bufio.Reader) (a reply, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	status, found := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if a.status, err = strconv.Atoi(string(status[:min(3, len(status))])); err != nil || !found {
		return a, fmt.Errorf("this is no answer: %q", line)
	}
	length := -1
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return a, err
		}
		name, value, found := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		switch string(name) {
		case "":
			if length < 0 {
				return a, errors.New("an answer does not say how long it is")
			}
			_, err = in.Discard(length)
			return a, err
		case "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return a, fmt.Errorf("this is no length: %q", line)
			}
		case "Retry-After":
			a.again = found && len(value) > 0
		case "Connection":
			a.last = string(value) == "close"
		}
	}
}
