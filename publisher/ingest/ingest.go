package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/env"
	"github.com/countmill/countmill/wire"
)

// The accepted types of a body.
const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// keyHeader names a request for its repeats.
const keyHeader = "Idempotency-Key"

// A Sender puts increments on the bus. Concurrent calls are allowed. nil means that all
// of them are durable; errors match the sentinels of package countmill, and one that
// matches ErrInvalid, ErrConflict, ErrOverloaded, ErrUnavailable or ErrClosed means
// that none of them was or will be counted. One that matches ErrIDsReused names the increments
// that were not counted; all others were. A *countmill.FieldError gives the Index in incs.
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

	// HorizonFunc says how old the time of an increment may be, as the publisher's does.
	// Default countmill.DefaultHorizon, always.
	HorizonFunc func() time.Duration

	// MaxBody is the most bytes of a body. Default 8 MiB.
	MaxBody int

	// MaxPending bounds what requests hold while they are read and sent, in bytes of
	// bodies over 4 KiB: what would go over it is refused with 429. With the increments
	// decoded from them, bodies need up to six times their size. Never below MaxBody.
	// Default 64 MiB.
	MaxPending int

	// MaxWait is how long increments may have to wait for the bus, by what it took lately:
	// where it would be longer, requests are refused with 429. Default a quarter of Timeout.
	MaxWait time.Duration

	// Logger gets what clients are not told. Default discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Timeout = positiveOr(c.Timeout, 10*time.Second)
	c.BodyTimeout = positiveOr(c.BodyTimeout, 30*time.Second)
	if c.HorizonFunc == nil {
		c.HorizonFunc = func() time.Duration { return countmill.DefaultHorizon }
	}
	c.MaxBody = positiveOr(c.MaxBody, api.MaxBody)
	c.MaxPending = max(positiveOr(c.MaxPending, 64<<20), c.MaxBody+1)
	c.MaxWait = positiveOr(c.MaxWait, c.Timeout/4)
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
	pending atomic.Int64 // bytes of bodies beyond what pooled buffers hold, until their requests are answered
	buffers sync.Pool
}

var _ http.Handler = (*Handler)(nil)

// pooled is the capacity that buffers have in the pool.
const pooled = 4 << 10

// New returns a handler that hands increments to sender.
func New(sender Sender, cfg Config) *Handler {
	h := &Handler{sender: sender, cfg: cfg.withDefaults()}
	h.queue.most = h.cfg.MaxWait
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
	if err := env.CheckClock(time.Now()); err != nil {
		return 0, err
	}
	// Before its body costs anything: whoever is offered far more than it takes must not
	// spend itself on what it refuses.
	if err := h.queue.full(1, time.Now()); err != nil {
		return 0, err
	}
	if err := h.fits(r.ContentLength); err != nil {
		return 0, err
	}
	incs, held, err := h.read(w, r, form)
	defer h.pending.Add(-held)
	if err != nil {
		return 0, err
	}
	caller := access.From(r.Context())
	if err := checkCounters(caller, incs, form); err != nil {
		return 0, err
	}
	return len(incs), place(h.send(r, caller.Name, key, keyed, incs), form, len(incs))
}

// send waits until the bus has the increments, if that will be soon.
func (h *Handler) send(r *http.Request, principal, key string, keyed bool, incs []countmill.Increment) (err error) {
	if err := h.queue.enter(len(incs), time.Now()); err != nil {
		return err
	}
	defer func() {
		h.queue.leave(len(incs), err == nil || errors.Is(err, countmill.ErrIDsReused), time.Now())
	}()
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	if keyed {
		return h.sender.PublishKeyed(ctx, principal, key, incs...)
	}
	return h.sender.Publish(ctx, incs...)
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

// read returns the increments of the body and how many pending bytes they stand for.
// The body itself is not kept.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, form wire.Form) (incs []countmill.Increment, held int64, err error) {
	small := h.buffers.Get().(*[pooled]byte)
	defer h.buffers.Put(small)
	body := api.BodyReader{Max: h.cfg.MaxBody, Timeout: h.cfg.BodyTimeout, Grow: h.reserve}
	buf, err := body.Read(w, r, small[:])
	held = int64(cap(buf) - pooled)
	if err == nil {
		incs, err = wire.DecodeJSON(buf, form, time.Now(), h.cfg.HorizonFunc())
	}
	return incs, held, err
}

// fits refuses a body of a length, -1 where it is unknown, that reserve would refuse after a part
// of it. It reserves nothing: that needs bytes, not the word of who may never send them.
func (h *Handler) fits(length int64) error {
	if length <= pooled || length > int64(h.cfg.MaxBody) || h.pending.Load()+length-pooled <= int64(h.cfg.MaxPending) {
		return nil
	}
	return h.overfull()
}

// reserve counts n bytes more as pending.
func (h *Handler) reserve(n int) error {
	if h.pending.Add(int64(n)) > int64(h.cfg.MaxPending) {
		h.pending.Add(-int64(n))
		return h.overfull()
	}
	return nil
}

func (h *Handler) overfull() error {
	return fmt.Errorf("%w: bodies of over %d bytes are being read", countmill.ErrOverloaded, h.cfg.MaxPending)
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
