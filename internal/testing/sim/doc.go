// Package sim runs the publisher, aggregator and reader against a simulated bus, store and
// cache, in virtual time, with faults, and checks that every increment was counted once.
//
// Everything random comes from one seed, so a schedule that goes wrong can be run again:
//
//	make replay SEED=n
//
// Virtual time alone does not make it the same run: goroutines that wake up at the same
// moment race each other. So every call to the bus, the engine of the store and the cache, and every new
// goroutine's first step, parks in the simulator. When nothing moves any more (World.settle)
// the simulator takes one step: it lets a parked call go, delivers a message, lets time pass
// or breaks something. It draws the step from the seed. Parked calls are sorted by their
// arguments, not by their arrival. No two timers end at the same instant (oddly). The roles'
// own choices must not be chance either: if two cases of a select can be ready at once, the
// role prefers one of them. Two runs were the same if their traces are.
//
// A killed process goes on in memory, but its calls are fenced: they fail at once, have no
// effect and are not part of the schedule. A call under way at that moment may still reach
// the store. A schedule ends in calm: nothing breaks any more, everything comes to rest
// within a bounded number of steps, and the ledger is closed.
//
// # Real and simulated
//
// The publisher, aggregator, reader and store are the real ones, with their real time-outs and
// back-offs; so are the wire format and the memory cache. The bus is a list of messages that
// are not acknowledged yet. The database is the engine that the engines' suite compares with the
// real ones: it has the limits of one of them. Its calls are lost, take effect late, are refused
// or meet others. HTTP, the backends and the processes are missing here: internal/testing/e2e and
// the conformance suites have them.
//
// # The ledger
//
// The deltas of a counter are different powers of 4, so the total is a number in base 4.
// Each digit says how often one increment was counted: 0, 1 or, if something is wrong, 2
// or 3. If the caller's answer was "durable", the digit must be 1, or a dead letter has the
// increment. If the answer was "not counted", it must be 0. Without a certain answer it is
// at most 1.
package sim
