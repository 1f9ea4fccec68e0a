package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// places is the number of increments of a counter with a history. Increment i adds 4^i, so each total
// shows how often it contains each increment. 4^26 is the largest power of 4 that a delta may be.
const places = 26

// A history is everything that was done with one counter. Times are since the start of the run.
type history struct {
	counter string
	adds    []add // by their places
	reads   []read
	seen    uint64 // the places that some read has shown
}

// An add is an increment, from its first attempt to the first answer that acknowledges it.
type add struct {
	call, acked time.Duration // acked is never if there was no such answer
	done        bool          // it is not sent any more
}

// A read is a total in the answer to one call.
type read struct {
	call, ret time.Duration
	staleness time.Duration // as the caller permitted
	asOf      time.Time
	total     int64
}

const never = time.Duration(math.MaxInt64)

// ones returns the places that are 1 in a total, packed: bit i is place i. The error says that
// something was counted more than once, or was never sent.
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

// full reports whether no place is left and no call is running.
func (h *history) full() bool {
	return len(h.adds) == places && !slices.ContainsFunc(h.adds, func(a add) bool { return !a.done })
}

// missing counts the increments that were acknowledged before a time and that no read has shown.
func (h *history) missing(before time.Duration) (n int) {
	for i, a := range h.adds {
		if a.acked < before && h.seen&(1<<i) == 0 {
			n++
		}
	}
	return n
}

// check compares the history with the promises for a counter:
//
//   - It is linearizable. A read takes effect before its answer, and after its call, or earlier by as
//     much staleness as its caller permitted. It shows the sum of the increments that took effect before
//     it. An increment takes effect after its first attempt. If a 202 means that it is counted (counted is
//     true), it takes effect before that answer, otherwise at any time.
//   - as_of orders reads by the increments that they show, if the two differ by more than apart. It is not
//     older than permitted.
func (h *history) check(counted bool, apart time.Duration) error {
	return errors.Join(h.checkOrder(apart), h.checkAges(), h.linearizable(counted))
}

// checkOrder wants later totals to contain all increments of earlier ones.
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

// An op is an add or a read that took effect between two times.
type op struct {
	from, to time.Duration
	what     string
}

// linearizable looks for an order. There is little choice, because each read shows which increments
// came before it. The order begins with the increments of the smallest total, then the reads of that
// total, then the further increments of the next larger total, its reads, and so on. So an order exists
// if the totals contain one another, and no operation ended before one began that must precede it.
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
	var latest op // of all earlier operations, the one that began last
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

// ops returns the adds of some places.
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

// epoch is the zero of the times of histories.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }
