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
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/wire"
)

// A request is a call of Publish, PublishKeyed or Flush that waits for its seal.
type request struct {
	items      []item      // increments to merge
	timed      []timed     // the same, with event times
	parts      []wire.Part // parts of their own, in an order that is kept
	known      *knownKey   // of a request with a key
	at         time.Time   // admitted; zero for a Flush, which holds nothing
	increments int64
	bytes      int64

	place *list.Element // in Publisher.requests; nil once sealed or withdrawn
	done  chan struct{} // closed when the outcome is known
	err   error         // readable after done
	// reused are parts of its seal whose ids were applied with other increments; readable after
	// done. They may be of other requests.
	reused map[wire.Use]struct{}
}

// A timed item counts at a minute of its own.
type timed struct {
	item
	minute wire.Minute
}

// Publish sends increments and returns nil when the bus has all of them durably. The
// increments are checked first: an error that matches countmill.ErrInvalid is a
// *countmill.FieldError with the Index, and nothing of the call is counted, as with
// ErrOverloaded and ErrClosed. ErrUnavailable: ctx ended before anything was sealed, or
// this machine's clock cannot be right; nothing is or will be counted. ErrOutcomeUnknown:
// ctx ended later, or the bus was closed; repeat only with the same ids.
//
// Where the bus says what became of a message, an error that matches ErrIDsReused names the
// increments that were not counted, because their ids were counted with other deltas. All
// others were counted. Other buses make dead letters of those.
//
// Increments without an ID are merged with all others; calls that wait at the same
// time share messages, and wait for each other's.
func (p *Publisher) Publish(ctx context.Context, incs ...countmill.Increment) error {
	now := p.cfg.Env.Now()
	if err := p.check(now, incs); err != nil {
		return err
	}
	r, err := newRequest(incs)
	if err != nil {
		return err
	}
	if err := p.send(ctx, r, now); err != nil {
		return err
	}
	return r.conflicts(incs)
}

// PublishKeyed is Publish for a request with an Idempotency-Key: repeated with the same
// principal, key and increments it is counted once, however often and from wherever it
// is sent, within the deduplication window. principal is who sent it, empty where callers are not
// told apart. The error matches countmill.ErrConflict when this process knows the key
// with other increments, or the bus says so; nothing of the call is then counted.
func (p *Publisher) PublishKeyed(ctx context.Context, principal, key string, incs ...countmill.Increment) error {
	now := p.cfg.Env.Now()
	if err := countmill.CheckID("Idempotency-Key", key); err != nil {
		return err
	}
	if principal != "" {
		if err := countmill.CheckID("principal", principal); err != nil {
			return err
		}
	}
	if err := p.check(now, incs); err != nil {
		return err
	}
	parts, err := wire.CutRequest(principal, key, incs)
	if err != nil {
		return err
	}
	// The cut depends on the request alone, so a repeat from anywhere has the same part ids.
	r := &request{parts: parts}
	r.measure(incs)
	if err := p.send(ctx, r, now); err != nil {
		return err
	}
	// Where the head was refused, nothing of the request is counted.
	if _, ok := r.reused[wire.Use{ID: r.known.id, Fingerprint: r.known.request}]; ok {
		return p.forgetKey(r.known)
	}
	return r.conflicts(incs)
}

// Flush sends what was added before the call, without linger, and returns nil when the
// bus has it durably. The error matches countmill.ErrClosed, or ErrOutcomeUnknown when
// ctx ended first or the bus was closed; what was not sent yet is sent later. Increments
// of Add that were lost before, because the bus was closed, make every later Flush fail:
// the error says how many.
func (p *Publisher) Flush(ctx context.Context) error {
	r := &request{done: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return countmill.ErrClosed
	}
	before := slices.SortedFunc(maps.Keys(p.seals), func(a, b *seal) int { return cmp.Compare(a.n, b.n) })
	r.place = p.requests.PushBack(r)
	p.urgent = true
	p.mu.Unlock()
	p.signal()
	// Sealed before the call, and maybe still on the way to the bus.
	for _, s := range before {
		if err := p.await(ctx, s.done, func() error { return s.err }); err != nil {
			p.withdraw(r)
			return err
		}
	}
	if err := p.await(ctx, r.done, func() error { return r.err }); err != nil {
		p.withdraw(r)
		return err
	}
	return p.untold()
}

// untold is the error for increments of Add that were lost after Add had returned.
func (p *Publisher) untold() error {
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
	if isClosed(done) { // also in the same moment, or Close came to its end and not to its deadline
		return outcome()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, context.Cause(ctx))
	}
	return fmt.Errorf("%w: the publisher was closed", countmill.ErrOutcomeUnknown)
}

func (p *Publisher) check(now time.Time, incs []countmill.Increment) error {
	if err := sysenv.CheckClock(now); err != nil {
		return err
	}
	window := p.cfg.DedupWindow
	if p.cfg.DedupWindowFunc != nil {
		window = p.cfg.DedupWindowFunc()
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

// newRequest keeps nothing of incs but strings: the caller may have its slice back
// while the request is being sealed.
func newRequest(incs []countmill.Increment) (*request, error) {
	type name struct{ counter, id string }
	var seen map[name]int // where it is in the parts
	r := &request{}
	for i, inc := range incs {
		if inc.ID == "" {
			r.add(inc, len(incs)-i)
			continue
		}
		if seen == nil {
			seen = make(map[name]int)
		}
		n := name{inc.Counter, inc.ID}
		if at, ok := seen[n]; ok {
			first := &r.parts[at]
			if first.Entries[0].Delta != inc.Delta {
				return nil, &countmill.FieldError{Field: "id", Index: &i, Problem: "stands twice in this request with different deltas"}
			}
			if first.Time.IsZero() || !inc.Time.IsZero() && inc.Time.Before(first.Time) {
				first.Time = inc.Time // it must not look younger than its marker
			}
			continue
		}
		seen[n] = len(r.parts)
		r.parts = append(r.parts, wire.CutIdentified(inc))
	}
	r.measure(incs)
	return r, nil
}

// add takes an increment without an id; there are at most so many left.
func (r *request) add(inc countmill.Increment, left int) {
	it := item{wire.Order(inc.Counter), inc.Counter, inc.Delta}
	if !inc.Time.IsZero() {
		r.timed = append(r.timed, timed{it, wire.MinuteOf(inc.Time)})
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

// send admits a request, and waits.
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
	switch { // an outcome that came in the same moment is better than none
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

// admit takes a request into the open batch. first: no other request was there.
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
	first = p.requests.Len() == 0
	r.place = p.requests.PushBack(r)
	return first, nil
}

// giveUp withdraws a request that is not sealed yet. One that is sealed may be counted.
func (p *Publisher) giveUp(r *request, cause error) error {
	if p.withdraw(r) {
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, cause)
	}
	if isClosed(r.done) {
		return r.err
	}
	return fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, cause)
}

// withdraw takes a request out of the open batch; false if it is sealed.
func (p *Publisher) withdraw(r *request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.place == nil {
		return false
	}
	// Taken off the list, it is in no seal: the caller may say that nothing is counted.
	p.requests.Remove(r.place)
	r.place = nil
	// Its room is for others now.
	p.open.add(-r.increments, -r.bytes)
	if r.known != nil {
		p.known.withdraw(r.known)
	}
	return true
}
