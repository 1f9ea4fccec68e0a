package aggregator

import (
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

// newer keeps messages of wire versions that this aggregator cannot read for a while, and gives
// them back to the bus. Another aggregator may read them, or the next one here.
type newer struct {
	waiting      []postponed // in the order in which they go back
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
	// A message waits for half its age, so that its deliveries become rare: brokers give a message
	// up after a number of them. At most, it waits for less than its lease, which is an hour.
	leastPostponed, mostPostponed = time.Second, 45 * time.Minute
	// postponedShare is the part of Config.HeldMessages that may wait besides. Beyond it the first
	// goes back early: 100 of the largest messages leave a bus room for others.
	postponedShare = 200
	// newerFor is how long the aggregator is not ready after the last of them.
	newerFor = time.Minute
)

// postpone keeps a message that this version cannot read. It is neither acknowledged nor a dead
// letter: nothing is wrong with it.
func (l *loop) postpone(m *message.Message, why wire.NewerError) {
	n, now, stored := &l.newer, time.Now(), l.a.clock.Now()
	p := postponed{wait: wait{stored, stored, now}, msg: m}
	if published, err := publishedAt(m); err == nil {
		p.born = published
	}
	p.due = now.Add(min(max(stored.Sub(p.born)/2, leastPostponed), mostPostponed))
	l.cover(p.wait)
	m.Payload, m.Metadata = nil, nil // they would be kept until it goes back
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

// giveBack gives back the messages that are due, all of them in a drain.
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

// reason is why an aggregator with such messages is not ready, and nil a while after the last.
func (n *newer) reason(now time.Time) error {
	if n.seen.IsZero() || len(n.waiting) == 0 && now.Sub(n.seen) > newerFor {
		return nil
	}
	return fmt.Errorf("messages go back to the bus: %w; upgrade this aggregator", n.last)
}
