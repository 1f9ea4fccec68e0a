// Package sim runs the publisher, aggregator and reader against a simulated bus, store and
// cache, in virtual time, with faults, and checks that every increment was counted once.
//
// Everything random comes from one seed, so a schedule that goes wrong can be run again:
//
//	make replay SEED=n
//
// Virtual time alone does not make it the same run: goroutines that wake up at the same
// moment race each other. So every call to the bus, the store and the cache, and every new
// goroutine's first step, parks here. When nothing moves any more (World.settle) the
// simulator does one thing that can happen: it lets a parked one go, delivers a message,
// lets time pass, breaks something. Which of them is drawn from the seed; those that wait
// together are sorted by what they ask for, not by when they came. No two ends of waiting
// fall on the same instant (oddly). What the roles choose themselves must not be chance:
// where two cases of a select can be ready at once they say which they prefer. The hash of
// the trace says whether two runs were the same one.
//
// A process that is killed goes on in memory, but its calls are fenced: they fail at once,
// have no effect and are not part of the schedule. What was in its calls at that moment may
// still reach the store. A schedule ends in calm: nothing breaks any more, all comes to
// rest within a bounded number of steps, and the ledger is closed.
//
// # What is real
//
// The publisher, aggregator and reader are the real ones, with their real time-outs and
// back-offs; so are the wire format and the memory cache. The bus is a list of messages
// that keeps what is not acknowledged. The store is the fake that the backends' suites hold
// to the same rules as the real ones. HTTP, the backends and the processes are not here:
// internal/testing/e2e and the conformance suites have them.
//
// # The ledger
//
// The deltas of a counter are different powers of 4, so the total is a number in base 4
// whose digits say how often each increment was counted: 0, 1 or, if something is wrong, 2
// or 3. A digit must be 1 for an increment that a caller was told is durable (or it stands
// in a dead letter), 0 for one that a caller was told is not counted, and at most 1 where
// the caller was never told.
package sim
