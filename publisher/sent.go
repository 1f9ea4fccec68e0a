package publisher

import (
	"cmp"
	"slices"
	"time"

	"github.com/countmill/countmill/wire"
)

// Sent describes increments that the bus has, as the publisher knows them.
type Sent struct {
	// Receipt names the messages that have the increments. A reader answers totals after it
	// (reader.TotalsAfter). It is zero if Counted, if they are in more messages than a receipt can have,
	// or if the bus counts them itself and has set a part aside. A bus over HTTP names them as its server
	// took them.
	Receipt wire.Receipt
	// Since is set by Flush: Receipt has the increments of Add since then. It is at most 5 seconds
	// before the call, and later if more than 64 batches have left since. So a program that reads its
	// increments back calls Flush soon after Add.
	Since time.Time
	// Counted is true if the bus has reported that the increments are in the store. Only a bus inside
	// the process does, and the batch receiver of a process that has one (backend/httpbus).
	Counted bool
	// CountedAsOf is a moment of the store: totals of it, or of a later one, contain the increments. It
	// is zero if the bus reports none, as inside the process.
	CountedAsOf time.Time
}

// flushCovers is how far before a Flush the increments of Add are that its receipt has.
const flushCovers = 5 * time.Second

// sentOf describes a message that the bus has. own is its receipt if the bus gives no answer.
func sentOf(reply *wire.Reply, own wire.Receipt) Sent {
	if !reply.Passed() {
		return Sent{Receipt: own}
	}
	return Sent{Receipt: reply.Receipt(), Counted: reply.Counted(), CountedAsOf: reply.CountedAsOf()}
}

// A joined describes several messages together.
type joined struct {
	receipt wire.Receipt // of the messages not yet counted
	asOf    time.Time    // the last moment of the counted messages
	counted bool         // a message is counted
	undated bool         // a counted message has no moment
	unknown bool         // nothing is known of a message
}

func (j *joined) add(messages []Sent) {
	for i := range messages {
		m := &messages[i]
		switch {
		case m.Counted:
			j.counted, j.undated = true, j.undated || m.CountedAsOf.IsZero()
			if m.CountedAsOf.After(j.asOf) {
				j.asOf = m.CountedAsOf
			}
		case m.Receipt.IsZero():
			j.unknown = true
		default:
			j.receipt.Database = cmp.Or(j.receipt.Database, m.Receipt.Database)
			j.receipt.Add(m.Receipt.Spans...)
		}
	}
}

func (j *joined) sent() Sent {
	r := j.receipt
	switch {
	case j.unknown, r.Messages() > wire.MaxReceiptMessages, len(r.Spans) > wire.MaxReceiptSpans:
		return Sent{}
	case !j.counted || len(r.Spans) > 0: // totals after the receipt are read later than the others were counted
		return Sent{Receipt: r}
	case j.undated:
		return Sent{Counted: true}
	}
	return Sent{Counted: true, CountedAsOf: j.asOf}
}

// place turns places of parts into messages. first has the place of the first part of each message,
// and own is the place of the first part that a request was cut into before.
func (s *flush) place(first []int, own int) {
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

// messagesOf are the messages with the increments of a request, from first to before end; none if its sums
// are all 0.
func (s *flush) messagesOf(r *request) (first, end int) {
	first, last := int(r.first), int(r.last)
	if r.merged > 0 && s.adds >= 0 {
		if first > last {
			last = s.adds
		}
		first, last = 0, max(last, s.adds)
	}
	if first > last {
		return 0, 0
	}
	return first, last + 1
}

// sent is the answer to a request whose flush the bus has.
func (p *Publisher) sent(r *request) Sent {
	all := joined{receipt: wire.Receipt{Database: p.cfg.Database, Time: r.flush.oldest}}
	first, end := r.flush.messagesOf(r)
	all.add(r.flush.messages[first:end])
	return all.sent()
}

// recent has the last flushes with increments of Add.
type recent struct {
	flushes []*flush
	dropped time.Time // when the latest flush was taken that had no room
}

func (rc *recent) add(s *flush) {
	if s.added == 0 || s.adds < 0 {
		return
	}
	rc.forget(time.Now())
	if len(rc.flushes) == wire.MaxReceiptSpans {
		rc.dropped = rc.flushes[0].taken
		rc.flushes = slices.Delete(rc.flushes, 0, 1)
	}
	rc.flushes = append(rc.flushes, s)
}

// forget removes the flushes that settled before a Flush at the time now covers them.
func (rc *recent) forget(now time.Time) {
	rc.flushes = slices.DeleteFunc(rc.flushes, func(s *flush) bool {
		return !s.settled.IsZero() && now.Sub(s.settled) > flushCovers
	})
}

// flushed is the answer to a Flush.
func (p *Publisher) flushed() Sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.env.Now()
	p.recent.forget(time.Now())
	all := joined{receipt: wire.Receipt{Database: p.cfg.Database, Time: now.Truncate(time.Microsecond)}}
	for _, s := range p.recent.flushes {
		if s.settled.IsZero() {
			continue // of increments that came later
		}
		all.receipt.Time = earlier(all.receipt.Time, s.oldest)
		all.add(s.messages[:s.adds+1])
	}
	sent := all.sent()
	if sent.Since = now.Add(-flushCovers); p.recent.dropped.After(sent.Since) {
		sent.Since = p.recent.dropped
	}
	return sent
}
