package httpserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/countmill/countmill"
)

const (
	// lingering is how long a client may go on sending a request that was answered. Then its connection ends: a client
	// that gets a reset at once may lose the answer. A guess.
	lingering = 500 * time.Millisecond
	// maxRest is the most bytes that are read of it, so that the connection can be kept.
	maxRest = 256 << 10
	// hurry is how long a stopping process waits for the rest of requests. A guess.
	hurry = time.Second
)

// ErrStopping ends a request of a stopping process: nothing of it was done. It is also the reason why the process is not ready.
var ErrStopping = fmt.Errorf("%w: this process is stopping", countmill.ErrClosed)

// answerAtOnce lets an answer leave before its request has arrived whole. net/http reads the rest first, for as long
// as the whole request may take, and a client that never sends it holds its connection meanwhile.
func answerAtOnce(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			h.ServeHTTP(w, r)
			return
		}
		a := &arrival{ReadCloser: r.Body, left: r.ContentLength, conn: connOf(r), control: http.NewResponseController(w)}
		_ = a.control.EnableFullDuplex()
		a.conn.moves(true, true)
		whole := *r
		whole.Body = a
		tracked := &trackedWriter{ResponseWriter: w, first: func() { a.announce(w.Header()) }}
		h.ServeHTTP(tracked, &whole)
		if !a.whole {
			tracked.begin()
			a.linger()
		}
	})
}

// An arrival is the body of a request while it comes in.
type arrival struct {
	io.ReadCloser
	conn  *limitedConn // waits for its client until the body is whole
	left  int64        // bytes that were not read yet; below 0 where nobody knows how many come
	whole bool

	control *http.ResponseController
	closes  bool // the answer says that the connection ends with it
}

// announce says so if more is left than is read: a client whose system has taken all of it would send its next request on this
// connection, and lose it. It also does for an answer without a length: net/http sends its end only when the handler has returned.
func (a *arrival) announce(header http.Header) {
	if !a.whole && (a.left < 0 || a.left > maxRest || header["Content-Length"] == nil) {
		header.Set("Connection", "close")
	}
	a.closes = header.Get("Connection") == "close"
}

func (a *arrival) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.left -= int64(n)
	if err == io.EOF && !a.whole {
		a.whole = true
		a.conn.moves(false, false)
	}
	return n, err
}

// linger reads the rest of a request that was answered, for a moment. What follows later must not be taken for another
// request.
func (a *arrival) linger() {
	end := time.Now().Add(lingering)
	_ = a.control.SetReadDeadline(end)
	if a.closes { // net/http sends the answer, reads until the deadline, and closes
		return
	}
	_ = a.control.Flush()
	_, err := io.CopyN(io.Discard, a, maxRest+1)
	if errors.Is(err, io.EOF) {
		return
	}
	if err == nil {
		<-time.After(time.Until(end))
	}
	_ = a.control.SetReadDeadline(time.Unix(1, 0))
	panic(http.ErrAbortHandler)
}
