package sim

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// idleWithin is how long a role's holdings may stay the same when nothing is left to do. The role
// computes them every second, and a failed round of letters waits for the next.
const idleWithin = 2 * time.Minute

// readyWithin is how long an aggregator may be not ready, when nothing breaks any more: it checks
// the database every 10 s, for as long as a call may take.
const readyWithin = 20 * time.Minute

// An idleOracle looks for what processes keep when there is nothing left to do.
type idleOracle struct {
	*World
	left  string    // the holdings
	since time.Time // since when nothing is left to do, and left is the same
}

// check reports whether all processes have given back all that they took: bytes, slots,
// parts, jobs, letters, shards; and whether all that are able are ready. A leak shows only here, as
// a role goes on with less room and is right about every increment.
func (io *idleOracle) check() bool {
	io.procs.restartHalted() // some notice late
	for _, p := range io.procs.everybody() {
		left, within := p.unreturned(), idleWithin
		if left == "" {
			left, within = p.unready(), readyWithin
		}
		if left == "" {
			continue
		}
		if left = p.name + " has nothing left to do and still " + left; left != io.left {
			io.left, io.since = left, time.Now()
		}
		if time.Since(io.since) > within {
			io.violate("%s", left)
		}
		return false
	}
	return true
}

// unreturned lists the holdings of the process in words; "" if there are none. After stop, a process may
// give back nothing any more.
func (p *proc) unreturned() string {
	var left []string
	for _, h := range p.holds() {
		if h.n != 0 && !p.leaving {
			left = append(left, fmt.Sprint(h.what, " ", h.n))
		}
	}
	if len(left) == 0 {
		return ""
	}
	return "holds " + strings.Join(left, ", ")
}

// unready is why an aggregator says that it is not ready; "" if it says that it is, or cannot be.
// The simulator's clocks stay wrong. A reader's readiness has no memory: each answer asks the store.
func (p *proc) unready() string {
	if p.agg == nil || p.leaving {
		return ""
	}
	err := p.agg.Ready()
	if err == nil || strings.HasPrefix(err.Error(), "the local clock") {
		return ""
	}
	return "is not ready: " + err.Error()
}

// A holding is how many of something a process holds.
type holding struct {
	what string
	n    int64
}

func (p *proc) holds() (all []holding) {
	if p.pub != nil {
		s := p.pub.Stats()
		all = append(all, holding{"open entries", s.OpenEntries}, holding{"open bytes", s.OpenBytes},
			holding{"messages on their way", s.InFlight}, holding{"messages queued", s.Queued},
			holding{"unsettled batches", s.Unsettled}, holding{"waiting calls", s.Waiting})
	}
	if p.agg != nil {
		s := p.agg.Stats()
		all = append(all, holding{"held messages", s.HeldMessages}, holding{"bytes of memory", s.HeldMemory},
			holding{"held parts", s.HeldParts}, holding{"jobs", s.Jobs}, holding{"shards in commits", s.OpenShards},
			holding{"waiting letters", s.WaitingDeadLetters}, holding{"letters in replay", s.Replaying}, holding{"hours of lag", int64(math.Ceil(s.Lag.Hours()))})
	}
	if p.rdr != nil {
		all = append(all, holding{"reads under way", p.rdr.Stats().Reading})
	}
	return all
}

// memoryEach is about an aggregator's estimate for a message. Some messages need more.
const memoryEach = 3000

// page is how many dead letters an aggregator holds at once that somebody asked for.
const page = 10

// checkMemory: roles hold no more than their settings allow, also when a store or bus is
// unavailable.
func (ps *processes) checkMemory() {
	for p := range ps.living(publishing) {
		s := p.pub.Stats()
		bounded(p, "increments open", s.OpenEntries, ps.shape.maxEntries)
		bounded(p, "bytes open", s.OpenBytes, ps.shape.maxBytes)
		bounded(p, "messages on their way", s.InFlight, ps.shape.inFlight)
		if s.InFlight+s.Queued > 0 || p.pubClosed {
			continue
		}
		// It tries each message until the bus takes it: its last call was a success.
		if err := p.pub.Ready(); err != nil {
			ps.violate("%s is not ready, and the bus took all that it had: %v", p.name, err)
		}
	}
	if ps.indexed != nil {
		ps.checkCorrected()
	}
	passed := time.Since(ps.checked) > 0
	ps.checked = time.Now()
	for p := range ps.living(aggregating) {
		if passed || p.stirred { // or its figures are those of before: it computes them every second, and after a check
			p.stirred = false
			bounded(p, "messages and letters held", p.agg.Stats().HeldMessages, p.heldMessages+page)
		}
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
	for p := range ps.living(indexing) {
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
