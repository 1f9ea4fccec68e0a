// Package sim runs the publisher, aggregator and reader against a simulated bus, store and
// cache, in virtual time, with faults, and checks that every increment was counted once.
//
// Everything random comes from one seed, so a schedule that goes wrong can be run again.
// Virtual time alone does not make it the same run: goroutines that wake up at the same
// moment race each other. So every call to the bus, the store and the cache, and every new
// goroutine's first step, parks here. When all are parked (synctest.Wait) the simulator
// lets one go, drawn from the seed; those that wait together are sorted by what they ask
// for, not by when they came. Between two such steps only one goroutine of a role has
// anything to do.
//
// A process that is killed goes on in memory, but its calls are fenced: they fail at once,
// have no effect and are not part of the schedule. What was in its calls at that moment may
// still reach the store.
//
// # The ledger
//
// The deltas of a counter are different powers of 4, so the total is a number in base 4
// whose digits say how often each increment was counted: 0, 1 or, if something is wrong, 2
// or 3. A digit must be 1 for an increment that a caller was told is durable (or it stands
// in a dead letter), 0 for one that a caller was told is not counted, and at most 1 where
// the caller was never told.
package sim
