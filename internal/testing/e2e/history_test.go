package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// places is how many increments a counter with a history gets: increment i adds 4^i, so
// that each total says of each increment how often it is in there. 4^26 is the last power of
// 4 that a delta may be.
const places = 26

// A history is what was done with one counter. Times are since the start of the run.
type history struct {
	counter string
	adds    []add // by their places
	reads   []read
	seen    uint64 // the places that some read has shown
}

// An add is an increment, from its first attempt to the first answer that it is counted.
type add struct {
	call, acked time.Duration // acked is never where there was no such answer
	done        bool          // nobody sends it any more
}

// A read is a total as it was answered to one call.
type read struct {
	call, ret time.Duration
	staleness time.Duration // as the caller permitted
	asOf      time.Time
	total     int64
}

const never = time.Duration(math.MaxInt64)

// ones are the places that are 1 in a total, packed: bit i is place i. It is an error if
// something was counted more than once, or nothing that was ever sent.
func (h *history) ones(total int64) (uint64, error) {
	var ones uint64
	for rest, i := uint64(total), 0; rest > 0; rest, i = rest/4, i+1 {
		switch n := rest % 4; {
		case n > 0 && (i >= len(h.adds) || total < 0):
			return 0, fmt.Errorf("%s: total %d holds what nobody sent", h.counter, total)
		case n > 1:
			return 0, fmt.Errorf("%s: total %d holds increment %d %d times", h.counter, total, i, n)
		case n == 1:
			ones |= 1 << i
		}
	}
	return ones, nil
}

// show adds a read.
func (h *history) show(r read) error {
	ones, err := h.ones(r.total)
	if err != nil {
		return err
	}
	h.reads, h.seen = append(h.reads, r), h.seen|ones
	return nil
}

// full reports whether there is no place for another increment, and no call under way.
func (h *history) full() bool {
	return len(h.adds) == places && !slices.ContainsFunc(h.adds, func(a add) bool { return !a.done })
}

// missing is how many of the increments that were acknowledged before a time no read has
// shown.
func (h *history) missing(before time.Duration) (n int) {
	for i, a := range h.adds {
		if a.acked < before && h.seen&(1<<i) == 0 {
			n++
		}
	}
	return n
}

// check holds the history against what a counter promises:
//
//   - It is linearizable. A read has its moment after as long before its call as its caller
//     permitted it to be old, and before its answer; it shows the sum of the increments that
//     have had theirs. An increment has its moment after its first attempt; where a 202 means
//     that it is counted (counted is true), before that answer, else at any time.
//   - as_of orders reads by what they show, where it is more than apart later, and is no
//     older than permitted.
func (h *history) check(counted bool, apart time.Duration) error {
	return errors.Join(h.checkOrder(apart), h.checkAges(), h.linearizable(counted))
}

// checkOrder wants later totals to hold all that earlier ones hold.
func (h *history) checkOrder(apart time.Duration) error {
	for _, a := range h.reads {
		before, _ := h.ones(a.total)
		for _, b := range h.reads {
			after, _ := h.ones(b.total)
			if before&^after != 0 && b.asOf.Sub(a.asOf) > apart {
				return fmt.Errorf("%s: total %d as of %s, and %d as of %s, which lacks some of it", h.counter, a.total, a.asOf, b.total, b.asOf)
			}
		}
	}
	return nil
}

func (h *history) checkAges() error {
	for _, r := range h.reads {
		if oldest := epoch.Add(r.call - r.staleness); r.asOf.Before(oldest.Add(-time.Millisecond)) { // as_of has microseconds
			return fmt.Errorf("%s: a total as of %s was asked for at %s, to be at most %s old", h.counter, r.asOf, epoch.Add(r.call), r.staleness)
		}
	}
	return nil
}

// An op is an add or a read, which had its moment between two times.
type op struct {
	from, to time.Duration
	what     string
}

// linearizable looks for an order. There is little to choose, as each read shows which
// increments came before it: those of the smallest total, the reads of that total, those
// that the next larger one has beside them, its reads, and so on. So an order exists if the
// totals contain one another, and no operation was over before one began that has to come
// before it.
func (h *history) linearizable(counted bool) error {
	reads := slices.Clone(h.reads)
	slices.SortFunc(reads, func(a, b read) int { return cmp.Compare(a.total, b.total) })
	var order [][]op // within one element any order is right
	var before uint64
	for i, r := range reads {
		ones, err := h.ones(r.total)
		if err != nil {
			return err
		}
		if before&^ones != 0 {
			return fmt.Errorf("%s: no order has both read %s and read %s", h.counter, reads[i-1], r)
		}
		if ones != before || i == 0 {
			order = append(order, h.ops(ones&^before, counted), nil)
		}
		before = ones
		order[len(order)-1] = append(order[len(order)-1], op{r.call - r.staleness, r.ret, "read " + r.String()})
	}
	order = append(order, h.ops((1<<len(h.adds)-1)&^before, counted))
	var latest op // of all that comes before, what began last
	for _, ops := range order {
		for _, o := range ops {
			if o.to < latest.from {
				return fmt.Errorf("%s: %s was over before %s, and must come after it", h.counter, o.what, latest.what)
			}
		}
		for _, o := range ops {
			if o.from > latest.from {
				latest = o
			}
		}
	}
	return nil
}

// ops are the adds of some places.
func (h *history) ops(of uint64, counted bool) (ops []op) {
	for i, a := range h.adds {
		if of&(1<<i) == 0 {
			continue
		}
		o := op{a.call, never, fmt.Sprintf("increment %d {%s to %s}", i, a.call, a.acked)}
		if counted {
			o.to = a.acked
		}
		ops = append(ops, o)
	}
	return ops
}

func (r read) String() string {
	return fmt.Sprintf("{%s to %s, as of %s: %d}", r.call-r.staleness, r.ret, r.asOf.Sub(epoch), r.total)
}

// epoch is what the times of histories count from.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }
