package publisher

import (
	"slices"
	"time"

	"github.com/countmill/countmill/wire"
)

// Sent is what a publisher knows of increments that the bus has.
type Sent struct {
	// Receipt names the messages that have the increments. A reader answers totals after it
	// (reader.TotalsAfter). It is zero if the bus reports itself whether they were counted, or if they
	// are in more messages than a receipt can have.
	Receipt wire.Receipt
	// Since is set by Flush: Receipt has the increments of Add since then. It is at most 5 seconds
	// before the call, and later if more than 64 batches have left since. So a program that reads what it
	// added calls Flush soon after.
	Since time.Time
	// Counted is true if the bus has reported that the increments are in the store. Only a bus inside
	// the process does.
	Counted bool
}

// flushCovers is how far before a Flush the increments of Add are that its receipt has.
const flushCovers = 5 * time.Second

// note takes in the reply to a message of the seal.
func (s *seal) note(reply *wire.Reply) {
	if reply.Passed() {
		s.replied++
	}
	if reply.Counted() {
		s.counted++
	}
}

// place turns places of parts into messages. first has the place of the first part of each message,
// and own is the place of the first part that a request was cut into before.
func (s *seal) place(first []int, own int) {
	message := func(part int) int {
		at, found := slices.BinarySearch(first, part)
		if !found {
			at--
		}
		return at
	}
	if s.adds = -1; own > 0 {
		s.adds = message(own - 1)
	}
	for _, r := range s.requests {
		if r.first <= r.last {
			r.first, r.last = int32(message(own+int(r.first))), int32(message(own+int(r.last)))
		}
	}
}

// span is the messages with the increments of a request; false if no message has any.
func (s *seal) span(r *request) (wire.Span, bool) {
	first, last := int(r.first), int(r.last)
	if r.merged > 0 && s.adds >= 0 {
		if first > last {
			last = s.adds
		}
		first, last = 0, max(last, s.adds)
	}
	return wire.Span{Seal: s.hash, First: first, Last: last, Sole: s.sole}, first <= last
}

// sent is the answer to a request whose seal the bus has.
func (p *Publisher) sent(r *request) Sent {
	receipt := wire.Receipt{Database: p.cfg.Database, Time: r.seal.oldest}
	if span, ok := r.seal.span(r); ok {
		receipt.Spans = []wire.Span{span}
	}
	return r.seal.sent(receipt)
}

func (s *seal) sent(receipt wire.Receipt) Sent {
	switch {
	case s.replied > 0:
		return Sent{Counted: s.counted == s.replied}
	case receipt.Time.IsZero() || receipt.Messages() > wire.MaxReceiptMessages:
		return Sent{}
	}
	return Sent{Receipt: receipt}
}

// recent has the last seals with increments of Add.
type recent struct {
	seals   []*seal
	dropped time.Time // when the latest seal was taken that had no room
}

func (rc *recent) add(s *seal) {
	if s.added == 0 || s.adds < 0 {
		return
	}
	rc.forget(time.Now())
	if len(rc.seals) == wire.MaxReceiptSpans {
		rc.dropped = rc.seals[0].taken
		rc.seals = slices.Delete(rc.seals, 0, 1)
	}
	rc.seals = append(rc.seals, s)
}

// forget removes the seals that settled before a Flush at the time now covers them.
func (rc *recent) forget(now time.Time) {
	rc.seals = slices.DeleteFunc(rc.seals, func(s *seal) bool {
		return !s.settled.IsZero() && now.Sub(s.settled) > flushCovers
	})
}

// flushed is the answer to a Flush.
func (p *Publisher) flushed() Sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.env.Now()
	p.recent.forget(time.Now())
	all, receipt := seal{}, wire.Receipt{Database: p.cfg.Database, Time: now.Truncate(time.Microsecond)}
	for _, s := range p.recent.seals {
		if s.settled.IsZero() {
			continue // of increments that came later
		}
		all.replied, all.counted = all.replied+s.replied, all.counted+s.counted
		receipt.Time = earlier(receipt.Time, s.oldest)
		receipt.Spans = append(receipt.Spans, wire.Span{Seal: s.hash, Last: s.adds, Sole: s.sole})
	}
	sent := all.sent(receipt)
	if sent.Since = now.Add(-flushCovers); p.recent.dropped.After(sent.Since) {
		sent.Since = p.recent.dropped
	}
	return sent
}
