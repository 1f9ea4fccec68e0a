package sim

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// idleWithin is how long a role may hold the same, when nothing is left to do: it works out what
// it holds every second, and a round of letters that failed waits for the next.
const idleWithin = 2 * time.Minute

// checkIdle reports whether all processes have given back all that they took: bytes, slots,
// parts, jobs, letters, shards. A leak shows only here, as a role goes on with
// less room and is right about every increment.
func (w *World) checkIdle() bool {
	for _, p := range w.everybody() {
		left := p.unreturned()
		if left == "" {
			continue
		}
		if left != w.left {
			w.left, w.rested = left, time.Now()
		}
		if time.Since(w.rested) > idleWithin {
			w.violate("%s has nothing left to do and still holds %s", p.name, left)
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
	return strings.Join(left, ", ")
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
			holding{"waiting letters", s.WaitingLetters}, holding{"letters in replay", s.Replaying}, holding{"hours of lag", int64(math.Ceil(s.Lag.Hours()))})
	}
	if p.rdr != nil {
		all = append(all, holding{"reads under way", p.rdr.Stats().Reading})
	}
	return all
}
