package publisher

import (
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
)

// Stats are counts since the Publisher was made, and its present state.
type Stats struct {
	Increments int64 // increments flushed: taken out of the open batch to be sent
	Durable    int64 // flushed increments whose whole batch is on the bus
	Unknown    int64 // flushed increments whose outcome stays unknown
	Refused    int64 // increments refused with ErrOverloaded, ErrClosed or ErrConflict, and by Add for a wrong clock

	Entries  int64 // entries on the bus; a batch of several messages counts with its first
	Messages int64 // on the bus
	Bytes    int64 // on the bus
	Resends  int64 // repeated calls to the bus

	OpenEntries int64 // entries in the open batch
	OpenBytes   int64 // approximate bytes of the open batch
	InFlight    int64 // calls to the bus under way
	Queued      int64 // flushed messages that wait for a free call
	Unsettled   int64 // flushed batches that are not completely on the bus
	Waiting     int64 // calls of Publish and Flush in the open batch
}

// Stats returns the counts so far. Increments count when their batch is flushed. It may be called
// at any time.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Refused = p.refused.Load()
	s.OpenEntries, s.OpenBytes = p.open.entries.Load(), p.open.bytes.Load()
	s.InFlight, s.Queued = int64(p.inFlight), int64(len(p.queue)+len(p.long.queue))
	s.Unsettled, s.Waiting = int64(len(p.pendingFlushes)), int64(p.waitingLocked())
	return s
}

// notReadyAfter is how long calls must fail before the publisher is not ready: shorter failures
// are ordinary, and lose nothing.
const notReadyAfter = 3 * time.Second

// health is the result of the latest calls to the bus.
type health struct {
	failing time.Time // since when no call has succeeded; zero after a success
	err     error     // the latest error
}

func (h *health) note(err error) {
	switch {
	case err == nil:
		*h = health{}
		return
	case h.failing.IsZero():
		h.failing = time.Now()
	}
	h.err = err
}

// Ready returns nil if increments are accepted and the bus takes them. Otherwise it returns the
// reason: the bus's latest error once calls have failed for 3 seconds, that the bus or the
// publisher is closed, or that this machine's clock must be wrong. It makes no calls.
func (p *Publisher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return countmill.ErrClosed
	}
	if err := clock.Check(p.cfg.env.Now()); err != nil {
		return err
	}
	h := p.health
	if h.err == nil || time.Since(h.failing) < notReadyAfter && !errors.Is(h.err, countmill.ErrClosed) {
		return nil
	}
	return fmt.Errorf("the bus has taken nothing since %s: %w", h.failing.UTC().Format(time.RFC3339), h.err)
}
