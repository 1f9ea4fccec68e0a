package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// The accepted types of a body.
const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// keyHeader names a request for its repeats.
const keyHeader = "Idempotency-Key"

// A Sender puts increments on the bus. Concurrent calls are allowed. Without an error, all
// increments are durable. Errors match the sentinels of package countmill. After an error that matches
// ErrInvalid, ErrConflict, ErrOverloaded, ErrUnavailable or ErrClosed, none of the increments was
// or will be counted. An error that matches ErrIDsReused names the increments that were not
// counted; all others were. A *countmill.FieldError has the Index in incs.
type Sender interface {
	Publish(ctx context.Context, incs ...countmill.Increment) (publisher.Sent, error)

	// PublishKeyed sends increments that a caller may send again under the same key.
	PublishKeyed(ctx context.Context, principal, key string, incs ...countmill.Increment) (publisher.Sent, error)

	// PublishPast sends increments that count in series at that minute. key may be empty.
	PublishPast(ctx context.Context, at time.Time, principal, key string, incs ...countmill.Increment) (publisher.Sent, error)
}

// IncrementsConfig bounds POST /v1/increments. Its zero value works; values below zero are as
// good as zero.
type IncrementsConfig struct {
	// Timeout is how long the bus may take to have a request's increments. A request waits for its turn for up to a quarter of
	// it, estimated by the Sender's latest speed: after a longer estimate, or after twice that wait, the answer is 429. The
	// Sender has at most a tenth of that quarter of work; callers take turns with the rest. Default 10s.
	Timeout time.Duration

	// BodyTimeout is how long a request's body may take to arrive. Default 30s.
	BodyTimeout time.Duration

	// DedupWindowFunc says how old the time of an increment may be, as the publisher's does.
	// Default countmill.DefaultDedupWindow, always.
	DedupWindowFunc func() time.Duration

	// Journal is that of publisher.Config.
	Journal func(counter string) bool

	// MaxBody is the most bytes of a body. Default 8 MiB.
	MaxBody int

	// MaxPending bounds the memory of requests until their answers are written, in bytes of
	// bodies over 4 KiB: a request that would exceed it is refused with 429. With the
	// increments decoded from them, bodies need up to six times their size. One caller has at
	// most eight ninths of it, and less beside others. Never below the need of one body.
	// Default 64 MiB.
	MaxPending int

	// MaxSending bounds the increments that the Sender has at once, so that it refuses none. It
	// may have a quarter more, and one request. Default 600,000, which suits the defaults of
	// publisher.Config.
	MaxSending int

	// Bus is how long the Sender takes for a single increment: its linger, and a bus on
	// another machine. Default 0.
	Bus time.Duration

	// Admit is asked before a body is read. Its error is the answer. Default admits all.
	Admit func() error
}

func (c IncrementsConfig) withDefaults() IncrementsConfig {
	c.Timeout = positiveOr(c.Timeout, 10*time.Second)
	c.BodyTimeout = positiveOr(c.BodyTimeout, 30*time.Second)
	if c.DedupWindowFunc == nil {
		c.DedupWindowFunc = func() time.Duration { return countmill.DefaultDedupWindow }
	}
	c.MaxBody = positiveOr(c.MaxBody, httpserver.MaxBody)
	c.MaxPending = positiveOr(c.MaxPending, 64<<20)
	c.MaxSending = positiveOr(c.MaxSending, 600_000)
	c.Bus = max(c.Bus, 0)
	if c.Admit == nil {
		c.Admit = func() error { return nil }
	}
	return c
}

func positiveOr[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// increments answers POST /v1/increments. When the client goes away, its context ends the work
// that is under way; the outcome is then unknown, as after any time-out.
func (a *API) increments(c call) (any, error) {
	ret, err := a.returning(c)
	if err != nil {
		return nil, err
	}
	at, err := pastParam(c)
	if err != nil {
		return nil, err
	}
	done, err := a.accept(c, at, &ret)
	if err != nil {
		return nil, err
	}
	return a.answer(c, done, ret), nil
}

// accepted is the answer {"accepted": n}, and how to read totals that contain the increments.
type accepted struct {
	n         int
	receipt   string    // empty if there is none
	countedAt time.Time // zero if it is not known
}

// AppendJSON makes it an httpserver.Appender.
func (a *accepted) AppendJSON(b []byte) []byte {
	return append(a.appendFields(b), '}')
}

func (a *accepted) appendFields(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"accepted":`...), int64(a.n), 10)
	if a.receipt != "" {
		b = append(append(append(b, `,"receipt":"`...), a.receipt...), '"')
	}
	if !a.countedAt.IsZero() {
		b = append(appendTime(append(b, `,"counted_as_of":"`...), a.countedAt), '"')
	}
	return b
}

// acceptedOf is the answer for n increments that were sent.
func (a *API) acceptedOf(n int, sent publisher.Sent) accepted {
	answer := accepted{n: n, receipt: sent.Receipt.String()}
	// The moment is asked for after the fold has returned, so later views show it.
	if sent.Counted && a.services.Moment != nil {
		answer.countedAt = a.services.Moment()
	}
	return answer
}

// pastParam is the time at which increments of the past count in series; zero if the request names
// none. Scope admin, which changes counted data, also changes the past.
func pastParam(c call) (time.Time, error) {
	at, err := timeParam(c.params, "at")
	switch {
	case err != nil || !c.params.Has("at"):
		return at, err
	case at.IsZero():
		return at, &countmill.FieldError{Field: "at", Problem: "is no time of the past that series keep", Limit: "at most 3660 days ago"}
	case !c.caller().Has(auth.Admin):
		return at, about(httpserver.NewProblem(http.StatusForbidden, "forbidden", "forbidden",
			"this token may not count in the past: at needs the scope "+string(auth.Admin)+": nothing was done"), "at", "with the scope "+string(auth.Admin))
	}
	return at, nil
}

// begin checks the head of a request for increments.
func (a *API) begin(c call, types ...string) (q *incoming, contentType string, err error) {
	if contentType, err = httpserver.ContentType(c.r, types...); err != nil {
		return nil, "", err
	}
	// Before the times in its body are compared with the clock, and called wrong.
	if err := clock.Check(time.Now()); err != nil {
		return nil, "", err
	}
	q = &incoming{caller: c.caller(), hold: c.hold}
	return q, contentType, a.admit(q, c.r.ContentLength)
}

// accept returns the answer to a request whose increments are durable: all of them.
func (a *API) accept(c call, at time.Time, ret *returning) (none accepted, err error) {
	q, contentType, err := a.begin(c, typeJSON, typeNDJSON)
	if err != nil {
		return none, err
	}
	if q.key, q.keyed, err = idempotencyKey(c.r); err != nil {
		return none, err
	}
	q.form = wire.JSON
	if contentType == typeNDJSON {
		q.form = wire.NDJSON
	}
	if err := a.readIncrements(c, q); err != nil {
		return none, err
	}
	if err := checkCounters(q.caller, q.incs, q.form); err != nil {
		return none, err
	}
	if err := ret.note(q.incs); err != nil {
		return none, err
	}
	q.entries = len(q.incs)
	var sent publisher.Sent
	err = a.send(c.ctx, q, func(ctx context.Context) (err error) {
		ctx = publisher.WithSender(ctx, q.caller.Name)
		switch {
		case !at.IsZero():
			sent, err = a.services.Sender.PublishPast(ctx, at, q.caller.Name, q.key, q.incs...)
		case q.keyed:
			sent, err = a.services.Sender.PublishKeyed(ctx, q.caller.Name, q.key, q.incs...)
		default:
			sent, err = a.services.Sender.Publish(ctx, q.incs...)
		}
		return err
	})
	if err != nil {
		return none, place(err, q.form, len(q.incs))
	}
	return a.acceptedOf(len(q.incs), sent), nil
}

// An incoming is a request as far as it was read.
type incoming struct {
	caller auth.Caller
	hold   *hold
	form   wire.Form
	key    string
	keyed  bool

	incs    []countmill.Increment
	entries int // that it has; in a batch, incs has them only if a quota needs their names
	bytes   int // of the body
}

// admit refuses a request before its body costs anything: a process that is offered far more
// than it takes must not spend itself on refusals. It reads small bodies and bodies of unknown
// length first: their callers may pass the lines.
func (a *API) admit(q *incoming, length int64) error {
	if err := a.cfg.Increments.Admit(); err != nil {
		return err
	}
	if err := q.caller.Open(); err != nil {
		return err
	}
	if length <= pooled || length > int64(a.cfg.Increments.MaxBody) {
		return nil
	}
	if err := a.queue.full(q.hold.caller, cost(1, int(length)), time.Now()); err != nil {
		return err
	}
	return a.pools.fits(q.hold, int(length)-pooled)
}

// send waits for the request's turn, charges the caller, and calls publish. It refuses the request if
// that would take too long.
func (a *API) send(ctx context.Context, q *incoming, publish func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Increments.Timeout)
	defer cancel()
	t, err := a.queue.enter(ctx, q.hold.caller, cost(q.entries, q.bytes), time.Now())
	if err != nil {
		return err
	}
	defer func() {
		a.queue.leave(t, err == nil || errors.Is(err, countmill.ErrIDsReused), time.Now())
	}()
	if err := q.caller.Charge(q.incs, q.entries, q.bytes); err != nil {
		return err
	}
	return publish(ctx)
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
	return "", false, &countmill.FieldError{Field: keyHeader, Problem: "is given " + strconv.Itoa(len(values)) + " times", Limit: "once"}
}

// readIncrements reads the increments of the body. The body itself is not kept.
func (a *API) readIncrements(c call, q *incoming) error {
	small := a.buffers.Get().(*[pooled]byte)
	defer a.buffers.Put(small)
	body := httpserver.BodyReader{Max: a.cfg.Increments.MaxBody, Timeout: a.cfg.Increments.BodyTimeout, Grow: func(n int) error { return a.pools.reserve(q.hold, n) }}
	buf, err := body.Read(c.w, c.r, small[:])
	if err != nil {
		return err
	}
	q.bytes = len(buf)
	if q.bytes > smallBody {
		a.decoding <- struct{}{}
		defer func() { <-a.decoding }()
	}
	q.incs, err = wire.DecodeJSON(buf, q.form, time.Now(), a.cfg.Increments.DedupWindowFunc())
	return err
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

// maxLines bounds Problem.Lines.
const maxLines = 10_000

// checkCounters refuses a request with counters that are not the caller's, and says where they are.
func checkCounters(caller auth.Caller, incs []countmill.Increment, form wire.Form) error {
	var first *auth.OutsideError
	for i := range incs {
		outside, ok := errors.AsType[*auth.OutsideError](caller.Check(incs[i].Counter))
		if !ok {
			continue
		}
		if form != wire.NDJSON {
			if len(incs) > 1 {
				outside.Index = &i
			}
			return outside
		}
		line := i + 1
		if first == nil {
			first, outside.Line = outside, &line
		}
		if first.Lines = append(first.Lines, line); len(first.Lines) == maxLines {
			break
		}
	}
	if first == nil {
		return nil
	}
	return first
}
