package sim

// memoryEach is about an aggregator's estimate for a message. Some messages need more.
const memoryEach = 3000

// page is how many dead letters an aggregator holds at once that somebody asked for.
const page = 10

// checkMemory: roles hold no more than their settings allow, also when a store or bus is
// unavailable.
func (ps *processes) checkMemory() {
	for _, p := range ps.lives(publishing) {
		s := p.pub.Stats()
		bounded(p, "increments open", s.OpenEntries, ps.shape.maxEntries)
		bounded(p, "bytes open", s.OpenBytes, ps.shape.maxBytes)
		bounded(p, "messages on their way", s.InFlight, ps.shape.inFlight)
		if err := p.pub.Ready(); err != nil && s.InFlight+s.Queued == 0 && !p.pubClosed {
			// It tries each message until the bus takes it: its last call was a success.
			ps.violate("%s is not ready, and the bus took all that it had: %v", p.name, err)
		}
	}
	if ps.indexed != nil {
		ps.checkCorrected()
	}
	for _, p := range ps.lives(aggregating) {
		bounded(p, "messages and letters held", p.agg.Stats().HeldMessages, p.heldMessages+page)
		p.checkReady()
	}
}

// checkReady: an aggregator is not ready after the store has answered that it is another database.
func (p *proc) checkReady() {
	if !p.told.IsZero() && p.agg.Ready() == nil {
		p.k.violate("%s is ready, after the store answered that it is another database", p.name)
	}
}

// checkCorrected: no increment was folded without a complete index.
func (ps *processes) checkCorrected() {
	for _, p := range ps.lives(indexing) {
		if p.idx != nil && p.idx.Stats().Corrected > 0 {
			ps.violate("%s corrected %d groups: increments were folded without a complete index", p.name, p.idx.Stats().Corrected)
		}
	}
}

func bounded(p *proc, what string, n int64, most int) {
	if n > int64(most) {
		p.k.violate("%s has %d %s, at most %d were to be", p.name, n, what, most)
	}
}
