package publisher

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/wire"
)

// A seal is what was open at one moment, on its way to the bus.
type seal struct {
	n          int // seals are numbered
	requests   []*request
	oldest     time.Time
	taken      time.Time
	entries    int
	increments int64
	added      int64 // of the increments, those of Add

	unsent int   // messages the bus does not have; under Publisher.mu
	err    error // why the outcome is unknown; readable after done
	reused map[wire.Use]struct{}
	done   chan struct{}
}

// A sealed message: these bytes, under this name, for as long as it takes.
type sealed struct {
	seal    *seal
	uuid    string
	payload []byte
	entries int
}

// takeLocked takes everything that is open. From here on it is sent, whatever the
// callers do.
func (p *Publisher) takeLocked() (*seal, *harvest) {
	h := p.final
	p.final = nil
	if h == nil {
		h = p.harvest(&p.taken, p.closed)
	}
	s := &seal{done: make(chan struct{}), taken: p.cfg.Env.Now(), oldest: h.oldest, increments: h.increments, added: h.increments}
	var entries, bytes int64
	for e := p.requests.Front(); e != nil; e = e.Next() {
		r := e.Value.(*request)
		r.place = nil
		s.requests = append(s.requests, r)
		s.increments += r.increments
		if !r.at.IsZero() {
			s.oldest = earlier(s.oldest, r.at)
		}
		entries, bytes = entries+r.increments, bytes+r.bytes
	}
	p.open.add(-entries, -bytes)
	p.requests.Init()
	p.urgent = p.closed
	p.sealed++
	s.n = p.sealed
	p.seals[s] = struct{}{}
	p.stats.Increments += s.increments
	return s, h
}

// harvest takes what Add left in the stripes.
func (p *Publisher) harvest(h *harvest, last bool) *harvest {
	for i := range p.stripes {
		p.stripes[i].harvest(h, last)
	}
	return h
}

// pack merges, sorts, cuts and encodes what was taken.
func (p *Publisher) pack(s *seal, h *harvest) []*sealed {
	var own []wire.Part
	for _, r := range s.requests {
		for _, it := range r.items {
			h.add(it)
		}
		own = append(own, r.parts...)
		r.items, r.parts = nil, nil
	}
	var parts []wire.Part
	for _, entries := range h.layers() {
		// The ids come from the system: a restored machine image would repeat a seeded generator.
		parts = append(parts, wire.CutAnonymous(p.cfg.Env, entries)...)
	}
	// A further part of a request follows the nearest head before it: keep the order.
	parts = append(parts, own...)
	payloads := wire.Pack(s.oldest, parts, wire.MaxBatch)
	ids := make([]wire.PartID, len(payloads))
	wire.RandomIDs(p.cfg.Env, ids)
	messages := make([]*sealed, len(payloads))
	for i, payload := range payloads {
		messages[i] = &sealed{seal: s, uuid: ids[i].String(), payload: payload}
	}
	b := wire.Batch{Parts: parts}
	if s.entries = b.Entries(); len(messages) > 0 {
		messages[0].entries = s.entries // statistics need no more
	}
	h.reset()
	return messages
}

// layers sums the items of one counter and drops what sums to 0, in the order of
// wire.SortEntries. A sum that would leave +-wire.MaxSum becomes several entries: a counter
// stands at most once in a layer, and layers are cut into parts one by one. They are good
// until the harvest is reset.
func (h *harvest) layers() [][]wire.Entry {
	n := 0
	for _, items := range h.items {
		n += len(items)
	}
	all := [][]wire.Entry{slices.Grow(h.entries[:0], n)}
	for _, items := range h.items { // divided in the order of entries already
		slices.SortFunc(items, compareItems)
		all = sumItems(all, items)
	}
	h.entries = all[0]
	return all
}

func compareItems(a, b item) int {
	if a.hash != b.hash {
		return cmp.Compare(a.hash, b.hash)
	}
	if c := strings.Compare(a.counter, b.counter); c != 0 {
		return c
	}
	return cmp.Compare(a.delta, b.delta) // or chance decides which sums overflow
}

func sumItems(all [][]wire.Entry, sorted []item) [][]wire.Entry {
	for i := 0; i < len(sorted); {
		end := i + 1
		// Hashes first: names lie anywhere in memory.
		for end < len(sorted) && sorted[end].hash == sorted[i].hash && sorted[end].counter == sorted[i].counter {
			end++
		}
		layer, sum := 0, int64(0)
		for _, it := range sorted[i:end] {
			if overflows(sum, it.delta) {
				all = put(all, layer, wire.Entry{Counter: it.counter, Delta: sum})
				layer, sum = layer+1, 0
			}
			sum += it.delta
		}
		all = put(all, layer, wire.Entry{Counter: sorted[i].counter, Delta: sum})
		i = end
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

// settleLocked ends a seal.
func (p *Publisher) settleLocked(s *seal) {
	delete(p.seals, s)
	if p.busy = 0; s.entries >= manyEntries {
		p.busy = p.cfg.Env.Now().Sub(s.taken)
	}
	if s.err == nil {
		p.stats.Durable += s.increments
	} else {
		p.stats.Unknown += s.increments
		p.lostAdds += s.added
	}
	for _, r := range s.requests {
		r.err, r.reused = s.err, s.reused
		close(r.done)
	}
	close(s.done)
}
