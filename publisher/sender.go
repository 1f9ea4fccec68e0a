package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second

	// maxHeld bounds the wait that a bus may ask for (wire.HeldError).
	maxHeld = 30 * time.Second

	// maxAside is the most messages that wait without a slot (setAside). Each has a goroutine, and the bus may remember
	// it: backend/httpbus has room for eight times as many.
	maxAside = 512

	// gather is the longest wait of a batch without a linger: for calls to the bus under way, and
	// after a large batch. Increments of a batch that left earlier would
	// only queue behind those calls. One call that hangs must not delay all others for long.
	//
	// 2 s: with 1M busy counters a shorter wait leaves too few increments for each entry, and
	// folding takes most of the time.
	gather = 2 * time.Second

	// gatherCalls replaces gather while a Publish waits, because there may be no other
	// increments. Such a batch waits for calls under way, but not after them.
	gatherCalls = 10 * time.Millisecond

	// manyEntries is the size of a large batch, whose folding is mostly CPU time. If the next
	// batch left as soon as that one is folded, each entry would have few increments.
	manyEntries = 10_000

	// gatherShare is the interval between large batches, in times that the last one took. So
	// sending and folding take a quarter of the time, and the callers of Add have the rest of the
	// machine. If they are slower than that, batches become small and leave at once.
	gatherShare = 4
)

// run is the sender. It flushes batches and starts deliveries until the publisher is closed and
// empty, or Close runs out of time. Only in the second case it leaves deliveries behind that a
// bus does not end.
func (p *Publisher) run() {
	defer close(p.done)
	linger := time.NewTimer(time.Hour)
	defer linger.Stop()
	for {
		wait, finished := p.advance()
		if finished {
			p.deliveries.Wait()
			return
		}
		linger.Reset(wait)
		select {
		case <-p.wake:
		case <-linger.C:
		case <-p.life.Done():
			p.drop()
			return
		}
	}
}

// advance does everything that can be done now. It returns the time until the next thing is due.
func (p *Publisher) advance() (wait time.Duration, finished bool) {
	for {
		p.mu.Lock()
		if p.life.Err() != nil {
			p.mu.Unlock()
			return time.Hour, false // run ends
		}
		p.dispatchLocked()
		if s, all := p.takeLongLocked(); s != nil {
			p.mu.Unlock()
			p.enqueue(s, p.pack(s, all))
			continue
		}
		now := p.cfg.env.Now()
		p.turnLocked(now)
		due, ok := p.dueLocked()
		if !ok {
			p.urgent = p.closed
			finished = p.closed && len(p.pendingFlushes) == 0 && p.waitingLocked() == 0
			p.mu.Unlock()
			return time.Hour, finished
		}
		if len(p.queue) > 0 || p.inFlight >= p.cfg.MaxInFlight {
			p.mu.Unlock()
			return p.untilTurn(now), false // the end of a delivery wakes the sender
		}
		// If wait is longer than the linger, the clock was set back since the first increment.
		if wait = due.Sub(now); wait > 0 && wait <= p.lingerLocked() {
			p.mu.Unlock()
			return min(wait, p.untilTurn(now)), false
		}
		s, all := p.takeLocked()
		p.mu.Unlock()
		p.enqueue(s, p.pack(s, all))
	}
}

// dueLocked is the time at which the open batch must be flushed; false if it is empty.
func (p *Publisher) dueLocked() (time.Time, bool) {
	oldest := p.sinceStripes()
	for _, h := range p.past {
		oldest = earlier(oldest, h.oldest)
	}
	if e := p.requests.Front(); e != nil && !e.Value.(*request).at.IsZero() {
		oldest = earlier(oldest, e.Value.(*request).at)
	}
	switch {
	case p.urgent && p.requests.Len() > 0, p.urgent && !oldest.IsZero():
		return time.Time{}, true
	case oldest.IsZero() && p.requests.Len() == 0:
		return time.Time{}, false
	case p.open.filled():
		return time.Time{}, true
	}
	return p.flushAtLocked(oldest), true
}

// lingerLocked is how long the open batch waits for more after its first increment.
func (p *Publisher) lingerLocked() time.Duration {
	after, inFlight := min(gatherShare*p.busy, gather), p.inFlight-p.long.inFlight
	switch {
	case p.cfg.Linger >= 0 && p.requests.Len() > 0:
		return p.cfg.Linger
	case p.cfg.Linger >= 0:
		return max(p.cfg.Linger, after)
	case inFlight == 0 && p.requests.Len() > 0:
		return 0
	case inFlight == 0:
		return after
	// The end of the calls wakes the sender earlier.
	case p.requests.Len() > 0:
		return gatherCalls
	}
	return gather
}

// enqueue queues the messages of a flush. A flush whose sums are all 0 has none.
func (p *Publisher) enqueue(s *flush, messages []*busMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.unsent = len(messages)
	p.recent.add(s)
	if s.unsent == 0 {
		p.settleLocked(s)
		return
	}
	q := p.queueOf(s) // while the flush was packed, messages may have come back
	*q = append(*q, messages...)
}

// dispatchLocked starts deliveries while there are messages and slots.
func (p *Publisher) dispatchLocked() {
	for p.inFlight < p.cfg.MaxInFlight {
		m := p.nextLocked()
		if m == nil {
			return
		}
		p.inFlight++
		p.deliveries.Add(1)
		p.cfg.env.Go(func() {
			defer p.deliveries.Done()
			p.deliver(m)
		})
	}
}

// deliver sends one message until the bus has it, or never can.
func (p *Publisher) deliver(m *busMessage) {
	for ; ; m.tries++ {
		// Each try has its own reply: the reply of a failed try is void.
		reply := new(wire.Reply)
		err := p.bus.Publish(p.cfg.Topic, m.message(wire.OfferOnce(wire.OfferReply(p.life, reply))))
		final := errors.Is(err, countmill.ErrClosed) || p.life.Err() != nil
		p.note(m, err)
		if err == nil || final {
			p.settle(m, err, reply)
			return
		}
		aside := p.setAside(m, err)
		// Send the same bytes again: with the same part ids they count once.
		slept := p.sleep(p.pause(m.tries, err))
		if aside {
			p.comeBack(m)
			return
		}
		if !slept {
			p.settle(m, err, reply)
			return
		}
	}
}

// setAside gives the message's slot to others while it waits, if the bus refuses this message alone. It reports
// false if too many are set aside.
func (p *Publisher) setAside(m *busMessage, err error) bool {
	if held, ok := errors.AsType[*wire.HeldError](err); !ok || !held.Alone {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aside >= maxAside || p.asideBytes+len(m.payload) > p.cfg.MaxBytes {
		return false
	}
	p.aside++
	p.asideBytes += len(m.payload)
	p.leaveLocked(m)
	p.signal()
	return true
}

// comeBack queues a message for its next try, unless Close has given up. New messages come after it:
// otherwise many could be set aside while it waits, and the bus would have to remember both.
func (p *Publisher) comeBack(m *busMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.tries++
	p.aside--
	p.asideBytes -= len(m.payload)
	if q := p.queueOf(m.flush); p.life.Err() == nil {
		again := 0
		for again < len(*q) && (*q)[again].tries > 0 {
			again++
		}
		*q = slices.Insert(*q, again, m)
	}
	p.signal()
}

func (p *Publisher) queueOf(s *flush) *[]*busMessage {
	if s.long {
		return &p.long.queue
	}
	return &p.queue
}

// leaveLocked frees the message's slot.
func (p *Publisher) leaveLocked(m *busMessage) {
	p.inFlight--
	if m.flush.long {
		p.long.inFlight--
	}
}

// sleep waits between two tries; false if life has ended. Close ends the waits that began before it: what held a
// message may be repaired since, and Close has little time.
func (p *Publisher) sleep(d time.Duration) bool {
	closing := p.closing
	if isClosed(closing) {
		closing = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closing:
	case <-p.life.Done():
	}
	return p.life.Err() == nil
}

// message makes a new envelope: Watermill's envelope has the state of one delivery.
func (m *busMessage) message(ctx context.Context) *message.Message {
	return message.NewMessageWithContext(ctx, m.uuid, m.payload)
}

// receipt names the message alone.
func (m *busMessage) receipt() wire.Receipt {
	span := wire.Span{Flush: m.flush.hash, First: m.number, Last: m.number, Single: m.flush.single}
	return wire.Receipt{Time: m.flush.oldest, Spans: []wire.Span{span}}
}

func (p *Publisher) settle(m *busMessage, err error, reply *wire.Reply) {
	p.mu.Lock()
	p.leaveLocked(m)
	p.settleMessageLocked(m, err, reply)
	p.mu.Unlock()
	p.signal()
}

func (p *Publisher) settleMessageLocked(m *busMessage, err error, reply *wire.Reply) {
	if err == nil {
		m.flush.addReply(reply)
		m.flush.messages[m.number] = sentOf(reply, m.receipt())
		p.stats.Messages++
		p.stats.Bytes += int64(len(m.payload))
		if m.number == 0 {
			p.stats.Entries += int64(m.flush.entries)
		}
	} else {
		p.lost = unclosed{err}
		m.flush.err = fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, p.lost)
	}
	if m.flush.unsent--; m.flush.unsent == 0 {
		p.settleLocked(m.flush)
	}
}

// unclosed hides an ErrClosed of the bus. To a caller ErrClosed means "certainly not counted",
// which is not known here.
type unclosed struct{ error }

// drop gives up the queue after Close ran out of time. The callers have their answers by then.
func (p *Publisher) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue, p.long.queue = nil, nil
	for _, h := range p.past {
		p.open.release(h.held)
		h.held = size{} // unsettled counts its increments
	}
}

func (p *Publisher) note(m *busMessage, err error) {
	p.mu.Lock()
	if m.tries > 0 {
		p.stats.Resends++
	}
	p.health.note(err)
	p.mu.Unlock()
	if err != nil {
		p.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "the bus did not take a batch",
			slog.String("batch", m.uuid), slog.Int("try", m.tries), slog.Any("err", err))
	}
}

// pause is the wait after a failed try. A bus that holds its messages may ask for a longer one.
func (p *Publisher) pause(try int, err error) time.Duration {
	wait := p.cfg.env.Backoff(try, minBackoff, maxBackoff)
	if held, ok := errors.AsType[*wire.HeldError](err); ok {
		wait = max(wait, min(held.After, maxHeld))
	}
	return wait
}
