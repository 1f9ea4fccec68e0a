package publisher

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/wire"
)

// A flush has the increments that left the open batch at one moment.
type flush struct {
	n          int // number of the flush
	requests   []*request
	oldest     time.Time
	taken      time.Time
	entries    int
	increments int64
	added      int64 // number of the increments that came from Add

	hash   wire.FlushHash
	single bool // its only message is one anonymous part
	kept   []kept
	adds   int // number of the last message with increments of Add or without ids; -1 if there is none

	long     bool   // it is one long request
	unsent   int    // messages that the bus does not have yet; under Publisher.mu
	messages []Sent // the known facts of each message; under Publisher.mu until done
	err      error  // why the outcome is unknown; read it after done
	reused   map[wire.Use]struct{}
	expired  map[wire.Use]struct{}
	settled  time.Time // by a clock that nobody sets; zero before; under Publisher.mu
	done     chan struct{}
}

// A busMessage is a message of a flush. Its payload and uuid never change.
type busMessage struct {
	flush   *flush
	number  int
	uuid    string
	payload []byte
	tries   int // that failed; written by the delivery
}

// takeLocked takes everything out of the open batch. From here on it is sent, even if its callers
// give up.
func (p *Publisher) takeLocked() (*flush, []*drain) {
	h := p.drain(&p.taken, p.closed)
	s := p.newFlush(h)
	all := append([]*drain{h}, p.past...)
	p.past = nil
	var held size
	for _, h := range all {
		s.add(h)
		held = held.plus(h.held)
	}
	for e := p.requests.Front(); e != nil; e = e.Next() {
		held = held.plus(s.take(e.Value.(*request)))
	}
	p.requests.Init()
	p.urgent = p.closed
	p.flushLocked(s, held)
	return s, all
}

func (p *Publisher) newFlush(h *drain) *flush {
	s := &flush{done: make(chan struct{}), taken: p.cfg.env.Now()}
	h.minute = wire.MinuteOf(s.taken) // for requests, if the drain is empty
	return s
}

// take takes a request, and returns its size in the open batch.
func (s *flush) take(r *request) size {
	r.place = nil
	s.requests = append(s.requests, r)
	s.increments += r.increments
	if !r.at.IsZero() {
		s.oldest = earlier(s.oldest, r.at)
	}
	return size{int(r.increments), r.bytes}
}

// flushLocked notes a flush that took so much from the open batch.
func (p *Publisher) flushLocked(s *flush, held size) {
	p.open.release(held)
	p.flushCount++
	s.n = p.flushCount
	p.pendingFlushes[s] = struct{}{}
	p.stats.Increments += s.increments
}

// add adds the counts of a drain.
func (s *flush) add(h *drain) {
	s.increments += h.increments
	s.added += h.increments
	if !h.oldest.IsZero() {
		s.oldest = earlier(s.oldest, h.oldest)
		h.minute = wire.MinuteOf(h.oldest)
	}
}

// drain takes the increments of Add out of the stripes. They count against the bounds of the
// open batch until the caller releases h.held.
func (p *Publisher) drain(h *drain, last bool) *drain {
	for i := range p.stripes {
		p.stripes[i].drain(h, last)
	}
	return h
}

// turnLocked separates the increments of Add by minute, so that each counts at its own. It takes
// those of the past minute out of the stripes. If the bus is down, they may wait for many
// minutes.
func (p *Publisher) turnLocked(now time.Time) {
	if since := p.sinceStripes(); since.IsZero() || wire.MinuteOf(since) == wire.MinuteOf(now) {
		return
	}
	p.past = append(p.past, p.drain(newDrain(), p.closed))
}

// untilTurn is the time until turnLocked has something to do.
func (p *Publisher) untilTurn(now time.Time) time.Duration {
	if p.sinceStripes().IsZero() {
		return time.Hour
	}
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now)
}

// sinceStripes is the time of the oldest increment in the stripes; zero if there is none.
func (p *Publisher) sinceStripes() (oldest time.Time) {
	for i := range p.stripes {
		if us := p.stripes[i].since.Load(); us != 0 {
			oldest = earlier(oldest, time.UnixMicro(us))
		}
	}
	return oldest
}

// pack merges, sorts, cuts and encodes the increments of a flush.
func (p *Publisher) pack(s *flush, all []*drain) []*busMessage {
	own := s.sort(all)
	var parts []wire.Part
	cut := func(sender string, minute wire.Minute, layers [][]wire.Entry) {
		if minute == wire.MinuteOf(s.oldest) {
			minute = 0 // the batch's own minute
		}
		for _, entries := range layers {
			// The ids come from the system's generator: a restored machine image would repeat a
			// seeded one.
			for _, part := range wire.CutAnonymous(p.cfg.env, entries) {
				part.Minute, part.Sender = minute, sender
				parts = append(parts, part)
			}
		}
	}
	for _, h := range all {
		cut("", h.minute, h.layers())
	}
	s.cutKept(cut)
	// A part of a request follows the nearest head before it: keep the order.
	parts = append(parts, own...)
	s.countIn(parts)
	id := wire.NewFlushID(p.cfg.env)
	s.hash = id.Hash()
	if len(parts) == 1 && parts[0].Kind == wire.Anonymous {
		parts[0].ID, s.single = s.hash.Single(0), true
	}
	size := wire.MaxBatch
	if s.long {
		size = longMessage
	}
	payloads, first := wire.Pack(s.oldest, id, parts, size)
	s.place(first, len(parts)-len(own))
	messages := make([]*busMessage, len(payloads))
	s.messages = make([]Sent, len(payloads))
	for i, payload := range payloads {
		messages[i] = &busMessage{flush: s, number: i, uuid: id.MessageUUID(i), payload: payload}
	}
	b := wire.Batch{Parts: parts}
	s.entries = b.Entries()
	all[0].reset() // the next flush uses its memory again
	return messages
}

// countIn notes in the first part how many increments the flush has beyond its entries.
func (s *flush) countIn(parts []wire.Part) {
	beyond := s.increments
	for i := range parts {
		beyond -= int64(len(parts[i].Entries))
	}
	if beyond > 0 && len(parts) > 0 {
		parts[0].Increments = min(int64(len(parts[0].Entries))+beyond, wire.MaxIncrements)
	}
}

// sort adds the increments of requests to the drains of their minutes, or to kept if a minute has none. It
// returns the parts that requests were cut into before.
func (s *flush) sort(all []*drain) (own []wire.Part) {
	of := make(map[wire.Minute]*drain, len(all))
	for _, h := range all {
		of[h.minute] = h
	}
	for _, r := range s.requests {
		came := wire.MinuteOf(r.at)
		h := of[came]
		for _, it := range r.items {
			if h == nil {
				r.timed = append(r.timed, timed{it, came})
				continue
			}
			h.add(it)
		}
		for _, it := range r.timed {
			if h := of[it.minute]; h != nil {
				h.add(it.item)
				continue
			}
			s.kept = append(s.kept, kept{timed: it})
		}
		s.takeKept(r, came)
		for i := range r.parts {
			if p := &r.parts[i]; p.Minute == 0 && p.Time.IsZero() && came != wire.MinuteOf(s.oldest) {
				p.Minute = came
			}
		}
		r.flush, r.first = s, int32(len(own))
		own = append(own, r.parts...)
		r.last = int32(len(own)) - 1
		r.items, r.timed, r.parts = nil, nil, nil
	}
	return own
}

// layers sums the items of each counter, in the order of wire.SortEntries, and drops sums of 0. A
// sum beyond +-wire.MaxSum becomes several entries in several layers: a counter is in a layer at
// most once, and each layer is cut into parts separately. The result is valid until the drain
// is reset.
func (h *drain) layers() [][]wire.Entry {
	n := 0
	for _, items := range h.items {
		n += len(items)
	}
	all := [][]wire.Entry{slices.Grow(h.entries[:0], n)}
	for _, items := range h.items { // the slices are in the order of entries already
		// By their orders alone: names are scattered in memory, and busy counters have many items.
		slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.order, b.order) })
		all = sumItems(all, items)
	}
	h.entries = all[0]
	return all
}

func compareItems(a, b item) int {
	if a.order != b.order {
		return cmp.Compare(a.order, b.order)
	}
	if c := strings.Compare(a.counter, b.counter); c != 0 {
		return c
	}
	return cmp.Compare(a.delta, b.delta) // makes the overflow of sums deterministic
}

// sumItems sums items that are sorted by their orders. It sorts those of one order if they are of several counters, or if their
// sum may overflow.
func sumItems(all [][]wire.Entry, items []item) [][]wire.Entry {
	for len(items) > 0 {
		n, sum, most, same := 0, int64(0), int64(0), true
		for ; n < len(items) && items[n].order == items[0].order; n++ {
			same = same && items[n].counter == items[0].counter
			size := max(items[n].delta, -items[n].delta)
			if same = same && !overflows(most, size); same {
				sum, most = sum+items[n].delta, most+size
			}
		}
		if same {
			all = put(all, 0, wire.Entry{Counter: items[0].counter, Delta: sum})
		} else {
			slices.SortFunc(items[:n], compareItems)
			all = sumSorted(all, items[:n])
		}
		items = items[n:]
	}
	return all
}

func sumSorted(all [][]wire.Entry, sorted []item) [][]wire.Entry {
	for len(sorted) > 0 {
		layer, n, sum := 0, 0, int64(0)
		for ; n < len(sorted) && sorted[n].counter == sorted[0].counter; n++ {
			if overflows(sum, sorted[n].delta) {
				all = put(all, layer, wire.Entry{Counter: sorted[n].counter, Delta: sum})
				layer, sum = layer+1, 0
			}
			sum += sorted[n].delta
		}
		all = put(all, layer, wire.Entry{Counter: sorted[0].counter, Delta: sum})
		sorted = sorted[n:]
	}
	return all
}

func put(all [][]wire.Entry, layer int, e wire.Entry) [][]wire.Entry {
	if e.Delta == 0 {
		return all
	}
	if layer == len(all) {
		all = append(all, nil)
	}
	all[layer] = append(all[layer], e)
	return all
}

// counted reports whether the bus's answers come after the fold. Then they show how long it takes.
func (s *flush) counted() bool {
	return slices.ContainsFunc(s.messages, func(m Sent) bool { return m.Counted })
}

// settleLocked ends a flush: the outcomes of all its messages are known.
func (p *Publisher) settleLocked(s *flush) {
	delete(p.pendingFlushes, s)
	s.settled = time.Now()
	if p.busy = 0; s.entries >= manyEntries && (p.cfg.Linger < 0 || s.counted()) {
		p.busy = p.cfg.env.Now().Sub(s.taken)
	}
	merged, unknown := s.mergedErr(), int64(0)
	if merged != nil {
		p.lostAdds += s.added
		unknown = s.added
	}
	if merged != nil && s.err == nil {
		p.lost = errMergedRefused
	}
	for _, r := range s.requests {
		r.err, r.reused, r.expired = s.err, s.reused, s.expired
		if r.merged > 0 && r.err == nil {
			r.err = merged
		}
		if r.err != nil {
			unknown += r.increments
		}
		close(r.done)
	}
	p.stats.Unknown += unknown
	p.stats.Durable += s.increments - unknown
	close(s.done)
	s.requests = nil // recent keeps the flush for a while
}
