package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A ledger has every increment of the clients and the promise that they got for it. In the end it is
// compared with the totals and the dead letters.
type ledger struct {
	*World

	sums    []*sum
	used    map[string]int // digits of each counter
	rivals  []rivalry
	garbage []string // payloads that nobody can read
}

// draw takes an increment of a counter into the ledger, nil where it has no digit left.
func (lg *ledger) draw(counter string) *sum {
	n := lg.used[counter]
	if n >= digits {
		return nil
	}
	lg.used[counter] = n + 1
	s := &sum{counter: counter, digit: n}
	lg.sums = append(lg.sums, s)
	return s
}

// A rivalry is two requests under one key, or two increments under one id: one of them
// counts.
type rivalry struct {
	first  []*sum
	second *sum
}

// rival notes that s came under the id or key of o.
func (lg *ledger) rival(o *op, s *sum) {
	first := o.sums[:1]
	if o.key != "" {
		first = o.sums
	}
	s.reused = true
	for _, f := range first {
		f.reused = true
	}
	lg.rivals = append(lg.rivals, rivalry{first, s})
}

// conflicted notes that an increment was refused for its id: it is not counted, nor will be.
func (lg *ledger) conflicted(s *sum) {
	lg.Conflicts++
	if !s.reused {
		lg.violate("increment %d of %s was refused for an id that nobody reused", s.digit, s.counter)
	}
	s.refused, s.least, s.most = true, 0, 0
}

// increments is what of the ledger is in a letter.
func (lg *ledger) increments(d store.DeadLetter) []*sum {
	parts := partsIn(d)
	return slices.DeleteFunc(slices.Clone(lg.sums), func(s *sum) bool {
		return !slices.ContainsFunc(parts, func(p wire.Part) bool { return s.in(&p) })
	})
}

// check compares the ledger with the store, when all has come to rest.
func (lg *ledger) check() {
	totals := lg.totals.folded
	letters := lg.db.deadLetters()
	dead := deadLetterSums(letters)
	for _, s := range lg.sums {
		times := s.times(totals[s.counter])
		inDeadLetter := s.deadLettered(dead)
		switch {
		case times > s.most:
			lg.violate("increment %d of %s was counted %d times, at most %d", s.digit, s.counter, times, s.most)
		case times < s.least && !inDeadLetter && !s.discarded:
			lg.violate("increment %d of %s was counted %d times, at least %d, and no dead letter has it", s.digit, s.counter, times, s.least)
		}
	}
	for counter, total := range totals {
		lg.checkRemainder(counter, total)
	}
	lg.totals.checkRemoved()
	lg.totals.checkBoard()
	lg.series.check(lg.sums, totals)
	lg.kept.check()
	lg.checkRivals(totals)
	lg.checkRefused(totals)
	lg.checkDeadLetters(letters, totals)
}

// checkRemainder finds increments that nobody sent.
func (lg *ledger) checkRemainder(counter string, total int64) {
	if lg.crowd.is(counter) || counter == hostile || countmill.IsGroup(counter) {
		return
	}
	if strings.HasPrefix(counter, flooded) {
		lg.checkFlood(counter, total)
		return
	}
	if counter == below {
		total = -total
	}
	if total < 0 || total>>(2*lg.used[counter]) != 0 {
		lg.violate("the total of %s is %d: more than was ever sent", counter, total)
	}
}

// checkFlood: of each id of the flood one increment was counted.
func (lg *ledger) checkFlood(counter string, total int64) {
	least, most := int64(1), int64(1)
	if lg.contest.flood == reusedIDs {
		least, most = int64(lg.contest.n), 2*int64(lg.contest.n)
	}
	if total < least || total > most {
		lg.violate("the total of %s is %d, not from %d to %d", counter, total, least, most)
	}
}

// checkDeadLetters: a message that can never be counted is in a dead letter, and no part is refused for
// the content of another one.
func (lg *ledger) checkDeadLetters(letters []store.DeadLetter, totals map[string]int64) {
	payloads := make(map[string]bool)
	for _, d := range letters {
		payloads[string(d.Payload)] = true
		parts := partsIn(d)
		lg.checkDeadLetter(&d, parts, totals)
		lg.checkYoung(&d, parts)
		if len(parts) > 0 && len(d.Reason) > 4 && d.Reason[:4] == "sim:" && !hasPoison(parts) {
			lg.violate("a dead letter holds parts that the store did not refuse: %s", d.Reason)
		}
	}
	for _, payload := range lg.garbage {
		if !payloads[payload] {
			lg.violate("a message of %d bytes that nobody can read is in no dead letter", len(payload))
		}
	}
}

// checkDeadLetter: a dead letter gives the right reason. If it says that its parts were not applied,
// they were not.
func (lg *ledger) checkDeadLetter(d *store.DeadLetter, parts []wire.Part, totals map[string]int64) {
	reused := strings.HasPrefix(d.Reason, "id reused")
	if d.Maybe && !reused {
		return
	}
	certain := !d.Maybe && (lg.cured == 0 || !hasPoison(parts)) // a cured store counts a message that is delivered again
	for _, s := range lg.sums {
		if !slices.ContainsFunc(parts, func(p wire.Part) bool { return s.in(&p) }) {
			continue
		}
		if reused && !s.reused {
			lg.violate("increment %d of %s is in a dead letter for an id that nobody reused", s.digit, s.counter)
		}
		if certain && !s.renewed && s.times(totals[s.counter]) > 0 {
			lg.violate("increment %d of %s is counted, and a dead letter says that it is not: %s", s.digit, s.counter, d.Reason)
		}
	}
}

// checkYoung: on one machine nobody repeats a part without an id, and its age does not matter.
func (lg *ledger) checkYoung(d *store.DeadLetter, parts []wire.Part) {
	judged := strings.HasPrefix(d.Reason, "beyond the deduplication window") || strings.HasPrefix(d.Reason, "time is more than")
	if lg.embedded && lg.remotes == 0 && judged && slices.ContainsFunc(parts, func(p wire.Part) bool { return p.Kind == wire.Anonymous }) {
		lg.violate("a part without a marker is in a dead letter for its time: %s", d.Reason)
	}
}

func hasPoison(parts []wire.Part) bool { return hasCounter(parts, poison) }

func hasCounter(parts []wire.Part, counter string) bool {
	for _, p := range parts {
		for _, e := range p.Entries {
			if e.Counter == counter {
				return true
			}
		}
	}
	return false
}

// checkRivals: nothing of a request is counted where another has won its key.
func (lg *ledger) checkRivals(totals map[string]int64) {
	for _, r := range lg.rivals {
		if r.second.renewed || r.second.times(totals[r.second.counter]) == 0 {
			continue
		}
		for _, s := range r.first {
			if !s.renewed && s.times(totals[s.counter]) > 0 {
				lg.violate("increments %d of %s and %d of %s have one id or key, and both are counted",
					s.digit, s.counter, r.second.digit, r.second.counter)
			}
		}
	}
}

// checkRefused: an increment is refused only where its rival is counted.
func (lg *ledger) checkRefused(totals map[string]int64) {
	for _, r := range lg.rivals {
		for _, s := range r.first {
			lg.checkWon(r.second, s, totals)
			lg.checkWon(s, r.second, totals)
		}
	}
}

// checkWon looks whether the winner was counted where the other one was refused for it.
func (lg *ledger) checkWon(winner, refused *sum, totals map[string]int64) {
	if refused.refused && winner.times(totals[winner.counter]) == 0 {
		lg.violate("increment %d of %s was refused, and increment %d of %s, which has its id, was not counted",
			refused.digit, refused.counter, winner.digit, winner.counter)
	}
}

const (
	// digits is how many increments a counter takes: 4^25 is below countmill.MaxDelta.
	digits = 26
	// poison is a counter whose commits the store refuses for their content.
	poison = "poison"
	// below is a counter of negative deltas.
	below = "below"
)

// A sum is one increment in the ledger.
type sum struct {
	counter   string
	digit     int
	least     int       // times that it must have been counted
	most      int       // times that it may have been counted
	reused    bool      // another increment came under its id, or its request's key
	renewed   bool      // it was asked for as new, as that one has its id
	discarded bool      // a letter that it is in was to be discarded
	added     time.Time // by its process's clock, if Add took it
	refused   bool      // its answer was that another one was counted under its id
	at        time.Time // its event time; zero if it has none
}

func (s *sum) delta() int64 {
	d := int64(1) << (2 * s.digit)
	if s.counter == below {
		return -d
	}
	return d
}

// maybe notes that its caller got no certain answer.
func (s *sum) maybe() { s.most = 1 }

// durable notes that its caller got the answer that it is durable.
func (s *sum) durable() { s.least, s.most = 1, 1 }

// times is how often total holds the increment.
func (s *sum) times(total int64) int {
	if s.counter == below {
		total = -total
	}
	return int(total>>(2*s.digit)) & 3
}

// deadLettered reports whether a dead letter has the increment; dead is that of deadLetterSums.
func (s *sum) deadLettered(dead map[string][]int64) bool {
	return slices.ContainsFunc(dead[s.counter], func(delta int64) bool { return s.times(delta) > 0 })
}

// in reports whether the part holds the increment.
func (s *sum) in(p *wire.Part) bool {
	return slices.ContainsFunc(p.Entries, func(e wire.Entry) bool { return e.Counter == s.counter && s.times(e.Delta) > 0 })
}
