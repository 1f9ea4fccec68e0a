package httpserver

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// MaxBody is the most bytes of a request's body, unless a handler says otherwise.
const MaxBody = 8 << 20

// A body of over slowFree bytes must bring leastBody bytes in each bodyWindow, because a body that
// does not end holds memory that others need. A smaller body may come as slowly as Timeout permits.
const (
	slowFree   = 64 << 10
	leastBody  = 320 << 10
	bodyWindow = 5 * time.Second
)

// minRead is the first size of a body's buffer.
const minRead = 4 << 10

// A BodyReader reads whole bodies within limits.
type BodyReader struct {
	// Max is the most bytes of a body.
	Max int
	// Timeout bounds the time from now until the body is there.
	Timeout time.Duration
	// Grow is asked before a buffer grows by n bytes; its error ends the reading. Nil
	// allows everything.
	Grow func(n int) error

	pace *pace // nil if there is no body
}

// A pace sets the deadlines by which a body has to arrive.
type pace struct {
	control *http.ResponseController
	end     time.Time // of the whole body
	until   time.Time // of this window
	least   int       // bytes that must be there by then
}

// start begins a window with n bytes there.
func (p *pace) start(now time.Time, n int) {
	p.until, p.least = p.end, 0
	if n > slowFree && now.Add(bodyWindow).Before(p.end) {
		p.until, p.least = now.Add(bodyWindow), n+leastBody
	}
	_ = p.control.SetReadDeadline(p.until)
}

// note records that n bytes have arrived. It returns false if the window has ended with too few.
func (p *pace) note(n int) bool {
	if p.least == 0 && n <= slowFree { // its end is that of the whole body
		return true
	}
	now := time.Now()
	switch {
	case p.least == 0 || n >= p.least:
		p.start(now, n)
	case now.After(p.until):
		return false
	}
	return true
}

// Read returns the body in buf, which grows as bytes arrive, never on the word of
// Content-Length. It returns the buffer with every error too. Errors are problems (408,
// 413), match countmill.ErrInvalid (a body that ends too early), or come from Grow.
func (b BodyReader) Read(w http.ResponseWriter, r *http.Request, buf []byte) ([]byte, error) {
	buf = buf[:0]
	if r.ContentLength > int64(b.Max) {
		return buf, b.tooLarge()
	}
	if r.ContentLength != 0 {
		// net/http lifts the deadline when the body ends. It must not be set if there is no
		// body: net/http watches the connection meanwhile, and would take the deadline for a
		// client that has gone. Writers without deadlines (tests) return an error.
		pace := &pace{control: http.NewResponseController(w), end: time.Now().Add(b.Timeout)}
		pace.start(time.Now(), 0)
		b.pace = pace
	}
	buf, err := b.read(r.Body, buf)
	if err == nil && len(buf) > b.Max {
		err = b.tooLarge()
	}
	return buf, err
}

// read stops somewhere over the limit.
func (b BodyReader) read(body io.Reader, buf []byte) ([]byte, error) {
	for len(buf) <= b.Max {
		if len(buf) == cap(buf) {
			grown, err := b.grow(buf)
			if err != nil {
				return buf, err
			}
			buf = grown
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == io.EOF:
			return buf, nil
		case errors.Is(err, countmill.ErrClosed):
			return buf, err
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && b.pace != nil && !b.pace.note(len(buf)):
			return buf, b.tooSlow()
		case err != nil:
			return buf, &countmill.FieldError{Field: "body", Problem: "ends too early: " + err.Error()}
		}
	}
	return buf, nil
}

func (b BodyReader) tooSlow() error {
	detail := "the body did not arrive within " + b.Timeout.String()
	if b.pace != nil && b.pace.least > 0 {
		detail = fmt.Sprintf("a body of over %d KiB must bring %d KiB every %s", slowFree>>10, leastBody>>10, bodyWindow)
	}
	return NewProblem(http.StatusRequestTimeout, "timeout", "timeout", detail+": nothing of this request was done").with("Connection", "close")
}

func (b BodyReader) grow(buf []byte) ([]byte, error) {
	size := min(max(2*cap(buf), minRead), b.Max+1)
	if b.Grow != nil {
		if err := b.Grow(size - cap(buf)); err != nil {
			return nil, err
		}
	}
	return append(make([]byte, 0, size), buf...), nil
}

// tooLarge also ends the connection: reading on to find its next request would be work
// without a bound.
func (b BodyReader) tooLarge() error {
	p := NewProblem(http.StatusRequestEntityTooLarge, "too-large", "too large",
		"the body is over "+strconv.Itoa(b.Max)+" bytes: nothing of this request was done; send it in pieces").with("Connection", "close")
	p.Field, p.Limit = "body", strconv.Itoa(b.Max)+" bytes"
	return p
}

// ContentType returns which of the accepted media types the body has. A charset may be
// named if it is UTF-8; nothing else may follow the type, and the body must not be
// compressed. The error is a 415 problem that names the accepted types.
func ContentType(r *http.Request, accepted ...string) (string, error) {
	if codings := r.Header["Content-Encoding"]; len(codings) > 0 && (len(codings) > 1 || !strings.EqualFold(codings[0], "identity")) {
		return "", unsupported("Content-Encoding", "the body must not be compressed", "identity").with("Accept-Encoding", "identity")
	}
	list := strings.Join(accepted, ", ")
	values := r.Header["Content-Type"]
	if len(values) != 1 {
		problem := "Content-Type is missing"
		if len(values) > 1 {
			problem = "Content-Type is given more than once"
		}
		return "", unsupported("Content-Type", problem, list).with("Accept", list)
	}
	if i := slices.Index(accepted, values[0]); i >= 0 { // nearly every request
		return accepted[i], nil
	}
	media, params, err := mime.ParseMediaType(values[0])
	charset, named := params["charset"]
	i := slices.Index(accepted, media)
	switch {
	case media == "application/x-www-form-urlencoded":
		return "", unsupported("Content-Type", "this is a form; with curl use --json instead of --data", list).with("Accept", list)
	case err != nil || i < 0:
		return "", unsupported("Content-Type", "this Content-Type is not accepted", list).with("Accept", list)
	case named && !strings.EqualFold(charset, "utf-8"):
		return "", unsupported("Content-Type", "the charset is not accepted", "utf-8").with("Accept", list)
	case len(params) > 1 || len(params) == 1 && !named:
		return "", unsupported("Content-Type", "a parameter of Content-Type is not accepted", list+", each with charset=utf-8 or nothing").with("Accept", list)
	}
	return accepted[i], nil
}

func unsupported(field, problem, limit string) *Problem {
	p := NewProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "unsupported media type",
		problem+" (limit: "+limit+")")
	p.Field, p.Limit = field, limit
	return p
}
