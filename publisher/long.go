package publisher

import "container/list"

const (
	// longRequest is the number of increments of a long request, if they are cut into parts already: with ids or a key
	// nothing is merged, and each part has a marker.
	longRequest = 5_000

	// longMessage is the size of a long request's messages, and longShare the part of MaxInFlight for them. Inside one process an
	// aggregator folds all that it has of them in one commit, and others wait for that: two messages have some 4,000 increments with
	// ids, which Pebble takes in 50 ms. Smaller ones would cost more commits.
	longMessage = 128 << 10
	longShare   = 4
)

// long has the long requests. Each is flushed by itself, one after the other, and its messages take turns with those of all
// others: a request with few increments waits for a part of a long one, and not for all of it.
type long struct {
	requests list.List     // of *request, not flushed, oldest first
	queue    []*busMessage // messages of the flushed request that wait for a slot
	inFlight int
	had      bool // the last turn
}

func (r *request) isLong() bool { return len(r.parts) > 0 && r.increments > longRequest }

// waitingLocked is the number of requests that are not flushed.
func (p *Publisher) waitingLocked() int { return p.requests.Len() + p.long.requests.Len() }

// takeLongLocked flushes the oldest long request, if all messages of the last one are on their way and a
// slot is free.
func (p *Publisher) takeLongLocked() (*flush, []*drain) {
	if p.long.requests.Len() == 0 || len(p.long.queue) > 0 || !p.mayLongLocked() || p.inFlight >= p.cfg.MaxInFlight {
		return nil, nil
	}
	h := &p.taken
	s := p.newFlush(h)
	s.long = true
	p.flushLocked(s, s.take(p.long.requests.Remove(p.long.requests.Front()).(*request)))
	return s, []*drain{h}
}

// mayLongLocked reports whether a message of a long request may be sent beside those on their way.
func (p *Publisher) mayLongLocked() bool {
	return p.long.inFlight < max(p.cfg.MaxInFlight/longShare, 1)
}

// othersLocked reports whether others need a slot. Increments that are flushed soon need the last one.
func (p *Publisher) othersLocked() bool {
	if len(p.queue) > 0 || p.inFlight < p.cfg.MaxInFlight-1 {
		return len(p.queue) > 0
	}
	due, ok := p.dueLocked()
	return ok && !due.After(p.cfg.env.Now().Add(gatherCalls))
}

// nextLocked takes the message whose turn it is; nil if none may be sent.
func (p *Publisher) nextLocked() (m *busMessage) {
	from := &p.queue
	// A long request and all others take turns.
	isLong := len(p.long.queue) > 0 && p.mayLongLocked() && !(p.long.had && p.othersLocked())
	if isLong {
		from = &p.long.queue
		p.long.inFlight++
	}
	if len(*from) == 0 {
		return nil
	}
	p.long.had = isLong
	m = (*from)[0]
	(*from)[0], *from = nil, (*from)[1:]
	return m
}
