package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/wire"
)

// The accepted types of a body.
const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// keyHeader names a request for its repeats.
const keyHeader = "Idempotency-Key"

// A Sender puts increments on the bus. Concurrent calls are allowed. After nil, all increments
// are durable. Errors match the sentinels of package countmill. After an error that matches
// ErrInvalid, ErrConflict, ErrOverloaded, ErrUnavailable or ErrClosed, none of the increments was
// or will be counted. An error that matches ErrIDsReused names the increments that were not
// counted; all others were. A *countmill.FieldError has the Index in incs.
type Sender interface {
	Publish(ctx context.Context, incs ...countmill.Increment) error

	// PublishKeyed sends increments that a caller may send again under the same key.
	PublishKeyed(ctx context.Context, principal, key string, incs ...countmill.Increment) error
}

// Config bounds requests. Its zero value works; values below zero are as good as zero.
type Config struct {
	// Timeout is how long the bus may take to have a request's increments. Default 10s.
	Timeout time.Duration

	// BodyTimeout is how long a request's body may take to arrive. Default 30s.
	BodyTimeout time.Duration

	// DedupWindowFunc says how old the time of an increment may be, as the publisher's does.
	// Default countmill.DefaultDedupWindow, always.
	DedupWindowFunc func() time.Duration

	// MaxBody is the most bytes of a body. Default 8 MiB.
	MaxBody int

	// MaxPending bounds what requests hold while they are read and sent, in bytes of
	// bodies over 4 KiB: what would go over it is refused with 429. With the increments
	// decoded from them, bodies need up to six times their size. One caller has at most eight
	// ninths of it, and less beside others. Never below the need of one body. Default 64 MiB.
	MaxPending int

	// MaxWait is how long a request may wait for its turn, estimated by the Sender's latest
	// speed: after a longer estimate, or after twice that wait, the answer is 429. The Sender
	// has at most a tenth of MaxWait of work; callers take turns with the rest. Default a
	// quarter of Timeout.
	MaxWait time.Duration

	// MaxSending bounds the increments that the Sender has at once, so that it refuses none. It
	// may have a quarter more, and one request. Default 600,000, which suits the defaults of
	// publisher.Config.
	MaxSending int

	// Bus is how long the Sender takes for a single increment: its linger, and a bus on
	// another machine. Default 0.
	Bus time.Duration

	// Admit is asked before a body is read. Its error is the answer. Default admits all.
	Admit func() error

	// Logger gets what clients are not told. Default discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Timeout = positiveOr(c.Timeout, 10*time.Second)
	c.BodyTimeout = positiveOr(c.BodyTimeout, 30*time.Second)
	if c.DedupWindowFunc == nil {
		c.DedupWindowFunc = func() time.Duration { return countmill.DefaultDedupWindow }
	}
	c.MaxBody = positiveOr(c.MaxBody, api.MaxBody)
	c.MaxPending = max(positiveOr(c.MaxPending, 64<<20), (c.MaxBody+1)/keen*(keen+1)+keen)
	c.MaxWait = positiveOr(c.MaxWait, c.Timeout/4)
	c.MaxSending = positiveOr(c.MaxSending, 600_000)
	c.Bus = max(c.Bus, 0)
	if c.Admit == nil {
		c.Admit = func() error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func positiveOr[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// A Handler answers POST /v1/increments.
type Handler struct {
	sender  Sender
	cfg     Config
	queue   queue
	buffers sync.Pool

	mu      sync.Mutex
	pending shares // bytes of bodies beyond what pooled buffers hold, until their requests are answered
}

var _ http.Handler = (*Handler)(nil)

// pooled is the capacity that buffers have in the pool.
const pooled = 4 << 10

// New returns a handler that hands increments to sender.
func New(sender Sender, cfg Config) *Handler {
	h := &Handler{sender: sender, cfg: cfg.withDefaults()}
	h.queue.most, h.queue.limit, h.queue.bus = h.cfg.MaxWait, h.cfg.MaxSending, h.cfg.Bus
	h.buffers.New = func() any { return new([pooled]byte) }
	return h
}

// ServeHTTP answers one request. When the client goes away, its context ends what is
// under way; the outcome is then unknown, as after any time-out.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := h.accept(w, r)
	if err != nil {
		api.WriteError(w, r, h.cfg.Logger, err)
		return
	}
	api.WriteJSON(w, http.StatusAccepted, accepted(n))
}

// accepted is the answer {"accepted": n}.
type accepted int

// AppendJSON makes it an api.Appender.
func (n accepted) AppendJSON(b []byte) []byte {
	b = append(b, `{"accepted":`...)
	return append(strconv.AppendInt(b, int64(n), 10), '}')
}

// accept returns how many increments of the request are durable: all of them.
func (h *Handler) accept(w http.ResponseWriter, r *http.Request) (int, error) {
	if r.Method != http.MethodPost {
		return 0, api.MethodNotAllowed(http.MethodPost)
	}
	if _, err := api.Query(r, nil, nil); err != nil {
		return 0, err
	}
	contentType, err := api.ContentType(r, typeJSON, typeNDJSON)
	if err != nil {
		return 0, err
	}
	key, keyed, err := idempotencyKey(r)
	if err != nil {
		return 0, err
	}
	form := wire.JSON
	if contentType == typeNDJSON {
		form = wire.NDJSON
	}
	// Before the times in its body are compared with the clock, and called wrong.
	if err := sysenv.CheckClock(time.Now()); err != nil {
		return 0, err
	}
	q := &incoming{caller: access.From(r.Context()), form: form, key: key, keyed: keyed}
	q.sharesAs = cmp.Or(q.caller.Name, r.RemoteAddr)
	if err := h.admit(q, r.ContentLength); err != nil {
		return 0, err
	}
	defer h.release(q)
	if err := h.read(w, r, q); err != nil {
		return 0, err
	}
	if err := checkCounters(q.caller, q.incs, form); err != nil {
		return 0, err
	}
	return len(q.incs), place(h.send(r.Context(), q), form, len(q.incs))
}

// An incoming is a request as far as it was read.
type incoming struct {
	caller access.Caller
	// sharesAs is the caller among which bounds are shared: the token's name or, without
	// tokens, the connection.
	sharesAs string
	form     wire.Form
	key      string
	keyed    bool

	incs    []countmill.Increment
	bytes   int // of the body
	pending int // bytes
}

// admit refuses a request before its body costs anything: a process that is offered far more
// than it takes must not spend itself on refusals. It reads small bodies and bodies of unknown
// length first: their callers may pass the lines.
func (h *Handler) admit(q *incoming, length int64) error {
	if err := h.cfg.Admit(); err != nil {
		return err
	}
	if err := q.caller.Open(); err != nil {
		return err
	}
	if length <= pooled || length > int64(h.cfg.MaxBody) {
		return nil
	}
	if err := h.queue.full(q.sharesAs, cost(1, int(length)), time.Now()); err != nil {
		return err
	}
	return h.fits(q.sharesAs, int(length)-pooled)
}

// send waits until the bus has the increments, if that will be soon.
func (h *Handler) send(ctx context.Context, q *incoming) (err error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	t, err := h.queue.enter(ctx, q.sharesAs, cost(len(q.incs), q.bytes), time.Now())
	if err != nil {
		return err
	}
	defer func() {
		h.queue.leave(t, err == nil || errors.Is(err, countmill.ErrIDsReused), time.Now())
	}()
	if err := q.caller.Charge(q.incs, q.bytes); err != nil {
		return err
	}
	if q.keyed {
		return h.sender.PublishKeyed(ctx, q.caller.Name, q.key, q.incs...)
	}
	return h.sender.Publish(ctx, q.incs...)
}

// idempotencyKey returns the request's key, if it has one.
func idempotencyKey(r *http.Request) (key string, keyed bool, err error) {
	values := r.Header[keyHeader]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, countmill.CheckID(keyHeader, values[0])
	}
	return "", false, &countmill.FieldError{Field: keyHeader, Problem: "stands " + strconv.Itoa(len(values)) + " times", Limit: "once"}
}

// read reads the increments of the body. The body itself is not kept.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, q *incoming) error {
	small := h.buffers.Get().(*[pooled]byte)
	defer h.buffers.Put(small)
	body := api.BodyReader{Max: h.cfg.MaxBody, Timeout: h.cfg.BodyTimeout, Grow: func(n int) error { return h.reserve(q, n) }}
	buf, err := body.Read(w, r, small[:])
	if err != nil {
		return err
	}
	q.bytes = len(buf)
	q.incs, err = wire.DecodeJSON(buf, q.form, time.Now(), h.cfg.DedupWindowFunc())
	return err
}

// keen bounds a caller's pending bytes: at most keen times the bytes that are free. One caller
// alone gets keen/(keen+1) of MaxPending, two callers keen/(2*keen+1) each. However many there
// are, some bytes stay free for a caller with few.
const keen = 8

// mostPendingLocked is the most pending bytes of a caller once n more are pending.
func (h *Handler) mostPendingLocked(n int) int {
	return keen * (h.cfg.MaxPending - h.pending.used - n)
}

// fits refuses a body that reserve would refuse after a part of it. It reserves nothing: only
// bytes that have arrived are reserved, and a client may announce more than it sends.
func (h *Handler) fits(caller string, n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending.by[caller]+n > h.mostPendingLocked(n) {
		return h.overfull()
	}
	return nil
}

// reserve counts n bytes more of a request as pending.
func (h *Handler) reserve(q *incoming, n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.pending.take(q.sharesAs, n, h.mostPendingLocked(n)) {
		return h.overfull()
	}
	q.pending += n
	return nil
}

// release ends what reserve began.
func (h *Handler) release(q *incoming) {
	if q.pending == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending.give(q.sharesAs, q.pending)
}

func (h *Handler) overfull() error {
	return fmt.Errorf("%w: bodies that are being read come to %d bytes, with this one to more than this caller's share", countmill.ErrOverloaded, h.cfg.MaxPending)
}

// place turns the Index of the sender's error into the place in the request: in NDJSON
// line n holds increment n-1, and a single object has no place.
func place(err error, form wire.Form, n int) error {
	ferr, ok := errors.AsType[*countmill.FieldError](err)
	if !ok || ferr.Index == nil || errors.Is(err, countmill.ErrOutcomeUnknown) {
		return err
	}
	placed := *ferr
	switch {
	case form == wire.NDJSON:
		line := *ferr.Index + 1
		placed.Index, placed.Line = nil, &line
	case n == 1:
		placed.Index = nil
	}
	return &placed
}

// checkCounters refuses a request that holds a counter which is not the caller's, and
// says where it stands.
func checkCounters(caller access.Caller, incs []countmill.Increment, form wire.Form) error {
	if !caller.Limited() {
		return nil
	}
	for i, inc := range incs {
		err := caller.Check(inc.Counter)
		outside, ok := errors.AsType[*access.OutsideError](err)
		switch {
		case err == nil:
			continue
		case ok && form == wire.NDJSON:
			line := i + 1
			outside.Line = &line
		case ok && len(incs) > 1:
			outside.Index = &i
		}
		return err
	}
	return nil
}
