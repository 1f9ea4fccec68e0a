package publisher

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/wire"
)

// A request is a call of Publish, PublishKeyed or Flush that waits for its outcome.
type request struct {
	items      []item      // increments to merge, without event times
	timed      []timed     // increments to merge, with event times
	apart      *apart      // increments to merge with those of the same sender; nil for most
	parts      []wire.Part // parts that are cut already, in order
	known      *knownKey   // the key of a request with a key
	at         time.Time   // when it was admitted; zero for a Flush, which has no increments
	increments int64
	merged     int64 // increments in items and timed
	bytes      int64

	// first and last are the places of its own parts among those of its flush, first > last if it has
	// none. After the flush is packed they are messages.
	first, last int32

	place *list.Element // in Publisher.requests or long.requests; nil once flushed or withdrawn
	done  chan struct{} // closed when the outcome is known
	err   error         // read it after done
	flush *flush        // nil before the flush
	// reused has the parts of its flush whose ids were applied with other increments, also parts
	// of other requests, and expired the parts that came too late. Read them after done.
	reused, expired map[wire.Use]struct{}
}

// A timed is an item that counts at its own minute.
type timed struct {
	item
	minute wire.Minute
}

// Publish sends increments, and returns without an error when the bus has all of them durably. It is safe for
// concurrent use. The error matches one of these:
//
//   - countmill.ErrInvalid: a *countmill.FieldError with the Index of the first wrong increment.
//   - ErrOverloaded, ErrClosed: nothing of the call is counted.
//   - ErrUnavailable: ctx ended before anything was flushed, or this machine's clock must be
//     wrong. Nothing is or will be counted.
//   - ErrOutcomeUnknown: ctx ended later, or the bus was closed. Or the time of an increment was before the
//     server's deduplication window when its batch came. Repeat the call only with the same ids.
//   - ErrIDsReused: a *countmill.ConflictsError with the increments that were not counted,
//     because their ids were counted with other deltas. All others were counted. Only some buses
//     report this; with others these increments become dead letters.
//
// Increments without an ID are merged with all others. Calls that wait at the same time share
// messages, and wait for each other's.
func (p *Publisher) Publish(ctx context.Context, incs ...countmill.Increment) (Sent, error) {
	return p.publish(ctx, 0, incs)
}

// publish lets the increments count at the minute in series, or at their own times if it is 0.
func (p *Publisher) publish(ctx context.Context, minute wire.Minute, incs []countmill.Increment) (Sent, error) {
	now := p.cfg.env.Now()
	if err := p.check(now, incs); err != nil {
		return Sent{}, err
	}
	r, err := newRequest(incs, minute)
	if err != nil {
		return Sent{}, err
	}
	r.keepApart(p.cfg.Journal, senderOf(ctx))
	if err := p.send(ctx, r, now); err != nil {
		return Sent{}, err
	}
	return p.sent(r), r.conflicts(incs)
}

// PublishKeyed is Publish for a request with an Idempotency-Key. Repeats with the same principal,
// key and increments count once within the deduplication window, from every process. principal is
// the caller; it is empty if callers are not authenticated. The error matches
// countmill.ErrConflict if this process knows the key with other increments, or the bus reports
// that. Nothing of the call is then counted.
func (p *Publisher) PublishKeyed(ctx context.Context, principal, key string, incs ...countmill.Increment) (Sent, error) {
	return p.publishKeyed(ctx, 0, principal, key, incs)
}

func (p *Publisher) publishKeyed(ctx context.Context, minute wire.Minute, principal, key string, incs []countmill.Increment) (Sent, error) {
	now := p.cfg.env.Now()
	if err := countmill.CheckID("Idempotency-Key", key); err != nil {
		return Sent{}, err
	}
	if principal != "" {
		if err := countmill.CheckID("principal", principal); err != nil {
			return Sent{}, err
		}
	}
	if err := p.check(now, incs); err != nil {
		return Sent{}, err
	}
	parts, err := cut(minute, principal, key, incs)
	if err != nil {
		return Sent{}, err
	}
	// The cut depends on the request alone, so a repeat from anywhere has the same part ids.
	r := &request{parts: parts}
	r.keepApart(p.cfg.Journal, senderOf(ctx))
	r.measure(incs)
	if err := p.send(ctx, r, now); err != nil {
		return Sent{}, err
	}
	head := wire.Use{ID: r.known.id, Fingerprint: r.known.request}
	if _, ok := r.expired[head]; ok {
		return Sent{}, errExpired
	}
	// If the head was refused, nothing of the request is counted.
	if _, ok := r.reused[head]; ok {
		return Sent{}, p.forgetKey(r.known)
	}
	return p.sent(r), r.conflicts(incs)
}

// cut cuts a request whose increments count at the minute, or at their own times if it is 0.
func cut(minute wire.Minute, principal, key string, incs []countmill.Increment) ([]wire.Part, error) {
	if minute != 0 {
		return wire.CutPast(minute, principal, key, incs)
	}
	return wire.CutRequest(principal, key, incs)
}

// MaxPast is the greatest age of the time in PublishPast: no series is kept for longer.
const MaxPast = 3660 * 24 * time.Hour

// PublishPast is PublishKeyed, or Publish if the key is empty, for increments of the past: all of them count
// in series at the minute of at, whatever their times are. Those are still compared with the deduplication window,
// which at may be older than. Increments that are older than the rule of their counter keeps are in the total
// and in no row: a publisher does not know the rules. Over backend/httpbus the token needs the scope admin: without it
// increments from over a day before the window count in series at the time of the call. The errors are the same, with the Field at if that is wrong.
func (p *Publisher) PublishPast(ctx context.Context, at time.Time, principal, key string, incs ...countmill.Increment) (Sent, error) {
	if age := p.cfg.env.Now().Sub(at); age > MaxPast || age < 0 {
		return Sent{}, &countmill.FieldError{Field: "at", Problem: at.UTC().Format(time.RFC3339) + " is not in the past that series keep", Limit: "at most 3660 days ago, and not later than now"}
	}
	if key == "" {
		return p.publish(ctx, wire.MinuteOf(at), incs)
	}
	return p.publishKeyed(ctx, wire.MinuteOf(at), principal, key, incs)
}

// Flush sends all increments that were added before the call, without linger, and returns without an
// error when the bus has them durably. Sent has a receipt for the increments since Sent.Since. The error matches countmill.ErrClosed, or ErrOutcomeUnknown if
// ctx ended first or the bus was closed; increments that were not sent are still sent later. If
// increments of Add were lost before, because the bus was closed, every later Flush fails with
// their number.
func (p *Publisher) Flush(ctx context.Context) (Sent, error) {
	r := &request{done: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Sent{}, countmill.ErrClosed
	}
	before := slices.SortedFunc(maps.Keys(p.pendingFlushes), func(a, b *flush) int { return cmp.Compare(a.n, b.n) })
	r.place = p.requests.PushBack(r)
	p.urgent = true
	p.mu.Unlock()
	p.signal()
	// Flushed before the call, and perhaps still on the way to the bus.
	for _, s := range before {
		if err := p.await(ctx, s.done, func() error { return s.err }); err != nil {
			p.withdraw(r)
			return Sent{}, err
		}
	}
	if err := p.await(ctx, r.done, func() error { return r.err }); err != nil {
		p.withdraw(r)
		return Sent{}, err
	}
	if err := p.lostAddsError(); err != nil {
		return Sent{}, err
	}
	return p.flushed(), nil
}

// lostAddsError is the error for increments of Add that were lost after Add had returned.
func (p *Publisher) lostAddsError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lostAdds == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d increments that were added before are not known to be durable: %w", countmill.ErrOutcomeUnknown, p.lostAdds, p.lost)
}

// await waits for an outcome.
func (p *Publisher) await(ctx context.Context, done <-chan struct{}, outcome func() error) error {
	select {
	case <-done:
	case <-ctx.Done():
	case <-p.life.Done():
	}
	if isClosed(done) { // checked again: both may be ready, and life also ends after a complete Close
		return outcome()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, context.Cause(ctx))
	}
	return fmt.Errorf("%w: the publisher was closed", countmill.ErrOutcomeUnknown)
}

func (p *Publisher) check(now time.Time, incs []countmill.Increment) error {
	if err := clock.Check(now); err != nil {
		return err
	}
	window := countmill.DefaultDedupWindow
	if p.cfg.DedupWindow != nil {
		window = p.cfg.DedupWindow()
	}
	for i, inc := range incs {
		if err := inc.Check(now, window); err != nil {
			return atIndex(err, i)
		}
	}
	return nil
}

func atIndex(err error, i int) error {
	var field *countmill.FieldError
	if errors.As(err, &field) {
		field.Index = &i
	}
	return err
}

// newRequest keeps only strings of incs: the caller may use its slice again while the request is
// flushed.
func newRequest(incs []countmill.Increment, minute wire.Minute) (*request, error) {
	ids, err := wire.Distinct(incs)
	if err != nil {
		return nil, err
	}
	r := &request{parts: make([]wire.Part, 0, len(ids))}
	for _, inc := range ids {
		part := wire.CutIdentified(inc)
		part.Minute = minute
		r.parts = append(r.parts, part)
	}
	for i, inc := range incs {
		if inc.ID == "" {
			r.add(inc, minute, len(incs)-i)
		}
	}
	r.measure(incs)
	return r, nil
}

// add adds an increment without an id. left bounds the number of increments to come, this one
// included.
func (r *request) add(inc countmill.Increment, minute wire.Minute, left int) {
	it := item{wire.Order(inc.Counter), inc.Counter, inc.Delta}
	r.merged++
	if minute == 0 && !inc.Time.IsZero() {
		minute = wire.MinuteOf(inc.Time)
	}
	if minute != 0 {
		r.timed = append(r.timed, timed{it, minute})
		return
	}
	if r.items == nil {
		r.items = make([]item, 0, left)
	}
	r.items = append(r.items, it)
}

func (r *request) measure(incs []countmill.Increment) {
	r.increments = int64(len(incs))
	r.bytes = requestCost + r.increments*entryCost
	for _, inc := range incs {
		r.bytes += int64(len(inc.Counter) + len(inc.ID))
	}
}

// send admits a request and waits for its outcome.
func (p *Publisher) send(ctx context.Context, r *request, now time.Time) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, context.Cause(ctx))
	}
	r.at, r.done = now, make(chan struct{})
	first, err := p.admit(r)
	if err != nil {
		p.refused.Add(r.increments)
		return err
	}
	if first || p.open.filled() {
		p.signal()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-p.life.Done():
	}
	switch { // prefer an outcome that came at the same moment
	case isClosed(r.done):
		return r.err
	case ctx.Err() != nil:
		return p.giveUp(r, context.Cause(ctx))
	}
	return p.giveUp(r, errors.New("the publisher was closed"))
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// admit takes a request into the open batch. first is true if there was no other request.
func (p *Publisher) admit(r *request) (first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, countmill.ErrClosed
	}
	keyed := len(r.parts) > 0 && r.parts[0].Kind == wire.Head
	if keyed && p.known.conflicts(&r.parts[0]) {
		return false, errKeyUsed
	}
	// Requests count against the bounds of the open batch, as Add does.
	if !p.open.reserve(r.increments, r.bytes) {
		return false, countmill.ErrOverloaded
	}
	if keyed {
		r.known = p.known.admit(&r.parts[0])
	}
	waiting := p.requests
	if r.isLong() {
		waiting = &p.long.requests
	}
	first = waiting.Len() == 0
	r.place = waiting.PushBack(r)
	return first, nil
}

// giveUp withdraws a request that is not flushed yet. A flushed request may be counted.
func (p *Publisher) giveUp(r *request, cause error) error {
	if p.withdraw(r) {
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, cause)
	}
	if isClosed(r.done) {
		return r.err
	}
	return fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, cause)
}

// withdraw takes a request out of the open batch. It returns false if the request is flushed.
func (p *Publisher) withdraw(r *request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.place == nil {
		return false
	}
	// Taken off the list, it is in no flush: the caller may say that nothing is counted.
	p.requests.Remove(r.place)
	p.long.requests.Remove(r.place) // it is in one of them
	r.place = nil
	// Others may use its room now.
	p.open.add(-r.increments, -r.bytes)
	if r.known != nil {
		p.known.withdraw(r.known)
	}
	return true
}
