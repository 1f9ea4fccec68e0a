package httpbus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

const (
	contentType = "application/vnd.countmill.batch"

	// maxAnswer is the most bytes of an answer that are read. A batch has at most 37,000 parts, and a
	// conflict takes less than 50 bytes.
	maxAnswer = 4 << 20

	// A batch that a person must act on is tried again after firstPause, and then after twice as
	// long each time, up to maxPause.
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// An answer is the body of a 202.
type answer struct {
	Parts     int `json:"parts"` // 0 only of another program
	Conflicts []struct {
		Part   int    `json:"part"`
		Reason string `json:"reason"`
	} `json:"conflicts"`
	Receipt     string    `json:"receipt"`
	CountedAsOf time.Time `json:"counted_as_of"`
}

// receipt is the batch's receipt; zero if there is none, or a newer server has made it.
func (a *answer) receipt() wire.Receipt {
	r, err := wire.ParseReceipt(a.Receipt)
	if err != nil {
		return wire.Receipt{}
	}
	return r
}

// A refusal is an answer other than 202.
type refusal struct {
	status     int
	kind       string // the last word of the problem's type; empty if another program answers
	text       string
	retryAfter time.Duration
}

func (e *refusal) Error() string {
	return fmt.Sprintf("the server answers %d %s: %s", e.status, http.StatusText(e.status), e.text)
}

// broken is the error of a call that reached the server and got no whole answer.
type broken struct{ error }

func (e *broken) Unwrap() error { return e.error }

// maybeTaken reports whether the server may have taken the batch. Only the server's own answer is certain: a proxy may
// give any other after the server has counted.
func maybeTaken(err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.kind == "" || r.status >= 500 && r.status != http.StatusServiceUnavailable && r.status != http.StatusInsufficientStorage
	}
	_, ok := errors.AsType[*broken](err)
	return ok
}

// pause is how long to wait at least after a number of tries. 0 leaves it to the publisher, whose
// waits suit a server that comes back soon.
func pause(tries int, err error) time.Duration {
	r, ok := errors.AsType[*refusal](err)
	switch {
	case !ok || r.status == http.StatusGatewayTimeout:
		return 0
	case r.retryAfter > 0:
		return min(r.retryAfter, maxPause)
	}
	return min(firstPause<<min(tries-1, 10), maxPause)
}

// post sends the batch once.
func (b *Bus) post(ctx context.Context, m *message.Message) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.target, bytes.NewReader(m.Payload))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", contentType)
	if b.token != nil {
		token, err := b.token(ctx)
		if err != nil {
			return a, fmt.Errorf("the token source: %w", err)
		}
		if token = strings.TrimSpace(token); token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	res, err := b.do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if res.StatusCode != http.StatusAccepted {
		return a, refused(res, text)
	}
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && a.Parts < 1 {
		err = errors.New("another program answers 202: a countmill says how many parts it has taken")
	}
	if err != nil {
		return a, &broken{err}
	}
	return a, nil
}

// do makes one request. The error is *broken if the request may have left.
func (b *Bus) do(req *http.Request) (*http.Response, error) {
	// Without a connection nothing was sent. http.Client may try several.
	var connecting, connected atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}
	res, err := b.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	_, traced := b.http.Transport.(*http.Transport)
	if err != nil && (connected.Load() || !connecting.Load() && !traced && b.http.Transport != nil) {
		return nil, &broken{err}
	}
	return res, err
}

// refused reads an answer other than 202. Another program's need not be JSON.
func refused(res *http.Response, text []byte) error {
	var p struct{ Type, Detail string }
	_ = json.Unmarshal(text, &p)
	e := &refusal{status: res.StatusCode, text: "another program answers, a proxy or no countmill"}
	if word, ours := strings.CutPrefix(p.Type, "urn:countmill:problem:"); ours {
		e.kind, e.text = word, word+": "+p.Detail
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		e.retryAfter = time.Duration(min(s, 3600)) * time.Second
	}
	return e
}
