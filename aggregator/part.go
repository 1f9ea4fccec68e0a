package aggregator

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

// A held is a message that is acknowledged, or a dead letter that is removed, when its last part
// is settled.
type held struct {
	msg    *message.Message
	reply  *wire.Reply // for the publisher; nil if the publisher does not wait for the ack
	letter string      // the dead letter's key; msg is nil then
	source string      // the message's id, for a letter of a message that cannot be read
	time   time.Time   // when its oldest increment was added
	wait
	memory int // estimated, in bytes
	open   int // number of parts that are not settled
	// maybe is true for a dead letter that may have been applied before. stays is true if a part
	// of the letter was set aside again under the letter's own key.
	maybe, stays bool
	// final is true if a part without a marker was applied, or may be in a dead letter. The
	// message must then not be delivered again.
	final bool
	// deadLettered is true if a part went to a dead letter.
	deadLettered bool

	completionID wire.PartID // zero if the message has no completion
	completion   *part       // made when it is needed
	single       bool        // the message has one part, which is its own completion
	completed    bool        // the completion is in the store, or never will be
}

// A part is a part in process. After admission only the loop touches its fields; nobody changes
// the embedded wire.Part.
type part struct {
	wire.Part
	at          time.Time // the part's own time; its marker expires by it
	from        time.Time // compared with the window: at, or the broker's time if that is earlier
	fold        uint64
	fingerprint wire.Fingerprint
	marked      bool        // needs a marker
	maybe       bool        // an attempt had an unknown outcome
	minute      wire.Minute // at which its entries count in series

	holder  *held
	head    *part    // the head that the part follows; nil for most
	company *company // nil for most parts
}

// A company waits until a part is settled.
type company struct {
	holders []*held // the messages of further copies
	// followers of a head wait here until it is settled.
	followers []*part
	// rivals have the same id and another fingerprint. If this part is applied, they are refused.
	// If it is refused, the next rival is tried, unless its fate is known too.
	rivals []*part
}

// with returns the part's company, and makes one if there is none.
func (p *part) with() *company {
	if p.company == nil {
		p.company = new(company)
	}
	return p.company
}

// takeFollowers removes and returns the followers.
func (p *part) takeFollowers() (followers []*part) {
	if p.company != nil {
		followers, p.company.followers = p.company.followers, nil
	}
	return followers
}

// takeRivals removes and returns the rivals.
func (p *part) takeRivals() (rivals []*part) {
	if p.company != nil {
		rivals, p.company.rivals = p.company.rivals, nil
	}
	return rivals
}

// join adds the message and the followers of a further copy of the part.
func (p *part) join(copy *part) {
	c := p.with()
	c.holders = append(c.holders, copy.holder)
	c.followers = append(c.followers, copy.takeFollowers()...)
}

// eachHolder calls f for each message that waits for the part.
func (p *part) eachHolder(f func(*held)) {
	f(p.holder)
	if p.company == nil {
		return
	}
	for _, h := range p.company.holders {
		f(h)
	}
}

// partsOf makes the parts in process of a batch. published is the broker's publish time; zero if
// there is none. Parts that follow a head are attached to it.
func partsOf(b *wire.Batch, h *held, published time.Time, skipAnonymous bool, foldID func() uint64) []*part {
	space := make([]part, len(b.Parts))
	parts := make([]*part, 0, len(b.Parts))
	var head *part
	for i := range b.Parts {
		p := &space[i]
		p.Part, p.holder, p.at, p.maybe = b.Parts[i], h, b.Time, h.maybe
		p.minute = b.Minute(&b.Parts[i])
		if !p.Time.IsZero() {
			p.at = p.Time
		}
		// Otherwise a part of a publisher whose clock is hours ahead would be taken after the
		// marker of the same part, sent by another publisher, is forgotten.
		if p.from = p.at; !published.IsZero() && published.Before(p.from) {
			p.from = published
		}
		if p.marked = p.Kind != wire.Anonymous || !skipAnonymous; p.marked {
			p.fold, p.fingerprint = foldID(), p.Fingerprint()
		}
		// It waits for its head: nothing of a refused request is counted.
		if p.Kind.Follows() {
			p.head = head
			c := head.with()
			c.followers = append(c.followers, p)
			continue
		}
		if p.Kind == wire.Head {
			head = p
		}
		parts = append(parts, p)
	}
	return parts
}
