package sim

import (
	"slices"
	"time"

	"github.com/countmill/countmill/wire"
)

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
