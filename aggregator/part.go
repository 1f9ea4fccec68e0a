package aggregator

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

// A held message is acknowledged when its last part is settled. A held dead letter is
// removed then.
type held struct {
	msg    *message.Message
	reply  *wire.Reply // for its publisher; nil unless that waits for the ack
	letter string      // the dead letter's key; msg is nil then
	source string      // its id, for dead letters
	time   time.Time   // when its oldest increment was added
	wait
	memory int // that it takes, estimated
	open   int // parts that are not settled
	// maybe and stays are of a dead letter: it may have been applied before, and it has
	// been set aside again as what it was.
	maybe, stays bool
	// final is true when a part without a marker was applied or may stand in a dead
	// letter: the message can then not be delivered again.
	final bool
}

// A part in process. Only the loop touches its fields after admission, but for the
// embedded wire.Part, which nobody changes.
type part struct {
	wire.Part
	at          time.Time // what it is stamped with; its marker is kept by it
	from        time.Time // what the window is judged by: that, or the broker's time where it is earlier
	fold        uint64
	fingerprint wire.Fingerprint
	marked      bool // needs a marker
	maybe       bool // an attempt had an unknown outcome

	holder *held
	head   *part // that it follows; nil for most
	// rests are all the rests of a head. They are applied with it, under its marker. nil where
	// some of them are not in its message, or the head was taken apart.
	rests   []*part
	company *company // nil for most
}

// A company waits for a part to be settled.
type company struct {
	holders []*held // of further copies
	// followers of a head wait here until it is settled.
	followers []*part
	// rivals have the same id and another fingerprint. They wait until this one is
	// settled: applied, it has won; if not, the next has its turn.
	rivals []*part
}

// with is the part's company, to be added to.
func (p *part) with() *company {
	if p.company == nil {
		p.company = new(company)
	}
	return p.company
}

// takeFollowers ends their wait.
func (p *part) takeFollowers() (followers []*part) {
	if p.company != nil {
		followers, p.company.followers = p.company.followers, nil
	}
	return followers
}

// whole reports whether the part's marker is that of a whole request.
func (p *part) whole() bool { return len(p.rests) > 0 }

// takeApart has the rests of a head follow it one by one.
func (p *part) takeApart() {
	if !p.whole() {
		return
	}
	c := p.with()
	c.followers = append(p.rests, c.followers...)
	p.rests = nil
}

// each calls f for the part and for its rests.
func (p *part) each(f func(*part)) {
	f(p)
	for _, r := range p.rests {
		f(r)
	}
}

// entries counts those of the part and of its rests.
func (p *part) entries() (n int) {
	p.each(func(q *part) { n += len(q.Entries) })
	return n
}

// takeRivals ends their wait.
func (p *part) takeRivals() (rivals []*part) {
	if p.company != nil {
		rivals, p.company.rivals = p.company.rivals, nil
	}
	return rivals
}

// join takes over what a further copy of the same part brought along.
func (p *part) join(copy *part) {
	copy.takeApart()
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

// partsOf makes parts in process of a batch. published is the broker's time of it, zero
// where there is none. Parts that follow a head hang on it.
func partsOf(b *wire.Batch, h *held, published time.Time, skipAnonymous bool, foldID func() uint64) []*part {
	space := make([]part, len(b.Parts))
	parts := make([]*part, 0, len(b.Parts))
	var head *part
	for i := range b.Parts {
		p := &space[i]
		p.Part, p.holder, p.at, p.maybe = b.Parts[i], h, b.Time, h.maybe
		if !p.Time.IsZero() {
			p.at = p.Time
		}
		// A publisher whose clock is hours ahead would have its parts taken after the
		// markers of the same parts, sent by another one, are forgotten.
		if p.from = p.at; !published.IsZero() && published.Before(p.from) {
			p.from = published
		}
		if p.marked = p.Kind != wire.Anonymous || !skipAnonymous; p.marked {
			p.fold, p.fingerprint = foldID(), p.Fingerprint()
		}
		// It waits for its head: of a refused request nothing is counted.
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
	for _, p := range parts {
		p.gather()
	}
	return parts
}

// gather has a head take its rests along, if its message has all of them.
func (p *part) gather() {
	if p.Kind != wire.Head || p.Number == 0 || len(p.Entries) == 0 || p.company == nil {
		return
	}
	// The number is a claim of the sender: make room for no more than there is.
	if int(p.Number) > len(p.company.followers) {
		return
	}
	rests, others := make([]*part, p.Number), []*part(nil)
	found := 0
	for _, f := range p.company.followers {
		if f.Kind != wire.Rest || rests[f.Number-1] != nil {
			others = append(others, f)
			continue
		}
		rests[f.Number-1] = f
		found++
	}
	// A copy of a rest waits for the head, as an increment with an id does.
	if found == len(rests) {
		p.rests, p.company.followers = rests, others
	}
}
