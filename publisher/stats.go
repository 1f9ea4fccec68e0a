package publisher

import (
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/sysenv"
)

// Stats are what a Publisher has done since it was made, and what it holds.
type Stats struct {
	Increments int64 // sealed: taken out of the open batch to be sent
	Durable    int64 // of those, on the bus with everything that was sealed with them
	Unknown    int64 // of those, with an outcome that will never be known
	Refused    int64 // increments refused as overloaded, closed or in conflict

	Entries  int64 // on the bus; a batch of several messages counts with its first
	Messages int64 // on the bus
	Bytes    int64 // on the bus
	Resends  int64 // calls to the bus with a message it had not taken before

	OpenEntries int64 // in the open batch
	OpenBytes   int64 // in the open batch, roughly
	InFlight    int64 // messages on their way
	Queued      int64 // messages sealed that wait for a free call to the bus
	Unsettled   int64 // batches sealed that the bus does not have whole yet
	Waiting     int64 // calls of Publish and Flush in the open batch
}

// Stats is a snapshot. Open increments count when their batch is sealed.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Refused = p.refused.Load()
	s.OpenEntries, s.OpenBytes = p.open.entries.Load(), p.open.bytes.Load()
	s.InFlight, s.Queued = int64(p.inFlight), int64(len(p.queue))
	s.Unsettled, s.Waiting = int64(len(p.seals)), int64(p.requests.Len())
	return s
}

// notReadyAfter is how long sends fail until the publisher says so: shorter failures
// are ordinary, and nothing is lost by them.
const notReadyAfter = 3 * time.Second

// health is how the latest calls to the bus went.
type health struct {
	failing time.Time // since when none succeeded
	err     error     // the latest
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

// Ready returns why nothing is accepted, or why the bus cannot be reached: the latest error
// once calls have failed for 3 seconds, or at once that the bus or the publisher is closed, or
// that this machine's clock cannot be right. It asks nobody.
func (p *Publisher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return countmill.ErrClosed
	}
	if err := sysenv.CheckClock(p.cfg.Env.Now()); err != nil {
		return err
	}
	h := p.health
	if h.err == nil || time.Since(h.failing) < notReadyAfter && !errors.Is(h.err, countmill.ErrClosed) {
		return nil
	}
	return fmt.Errorf("the bus has taken nothing since %s: %w", h.failing.UTC().Format(time.RFC3339), h.err)
}
