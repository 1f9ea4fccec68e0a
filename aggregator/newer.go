package aggregator

import (
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

// newer keeps messages of newer wire versions for a while, and then gives them back to the bus.
// Another aggregator, or this one after an upgrade, may read them.
type newer struct {
	waiting      []postponed // sorted by due
	last         wire.NewerError
	seen, logged time.Time
}

// A postponed message goes back to the bus when it is due.
type postponed struct {
	wait
	msg *message.Message
	due time.Time
}

const (
	// A message waits for half its age, so that its deliveries become rare: brokers give up a
	// message after a number of deliveries. It never waits for as long as its lease, which is an
	// hour.
	leastPostponed, mostPostponed = time.Second, 45 * time.Minute
	// At most 1/postponedShare of Config.HeldMessages may wait, in addition to held messages.
	// Beyond that bound the first goes back early. 100 messages of the largest size leave a bus
	// room for others.
	postponedShare = 200
	// newerFor is how long the aggregator is not ready after the last such message.
	newerFor = time.Minute
)

// postpone keeps a message that this version cannot read. It is neither acknowledged nor made a
// dead letter: the message is not wrong.
func (l *loop) postpone(m *message.Message, why wire.NewerError) {
	n, now, stored := &l.newer, time.Now(), l.a.clock.Now()
	p := postponed{wait: wait{stored, stored, now}, msg: m}
	if published, err := publishedAt(m); err == nil {
		p.born = published
	}
	p.due = now.Add(min(max(stored.Sub(p.born)/2, leastPostponed), mostPostponed))
	l.cover(p.wait)
	m.Payload, m.Metadata = nil, nil // frees their memory before the message goes back
	n.waiting = append(n.waiting, p)
	slices.SortFunc(n.waiting, func(a, b postponed) int { return a.due.Compare(b.due) })
	if len(n.waiting) > max(l.a.cfg.HeldMessages/postponedShare, 1) {
		n.giveFirst()
	}
	if n.last, n.seen = why, now; now.Sub(n.logged) >= time.Second {
		n.logged = now
		l.a.cfg.Logger.Error("messages go back to the bus: upgrade this aggregator", "err", why)
	}
}

// giveBack gives back the messages that are due, and all of them during a drain.
func (l *loop) giveBack(now time.Time) {
	n := &l.newer
	for len(n.waiting) > 0 && (l.draining || !now.Before(n.waiting[0].due)) {
		n.giveFirst()
	}
}

func (n *newer) giveFirst() {
	n.waiting[0].msg.Nack()
	n.waiting = slices.Delete(n.waiting, 0, 1)
}

// reason is the error that makes the aggregator not ready; nil if the last such message went back
// over newerFor ago.
func (n *newer) reason(now time.Time) error {
	if n.seen.IsZero() || len(n.waiting) == 0 && now.Sub(n.seen) > newerFor {
		return nil
	}
	return fmt.Errorf("messages go back to the bus: %w; upgrade this aggregator", n.last)
}
