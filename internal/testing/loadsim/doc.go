// Package loadsim simulates loads that do not fit on a machine: up to a thousand aggregators that
// commit to a store of which each entity takes only so many writes a second, in virtual time.
//
// Its events are messages and commits, not increments: a message is a moment and the chances
// that it holds this counter and that (contents). What aggregators do with messages follows
// package aggregator step by step (linger, full windows, entities of a commit, commits at once,
// retries and their times) and is written anew here, as the real one would take a goroutine
// and memory for each message. The choice of shards and their number are the real ones, of
// package shards. Groups of an index are simulated as counters that commits write too.
//
// The store is a bucket of tokens for each entity (store), and latencies that are assumed. CPU,
// memory, networks and the bus' limits are not simulated. docs/evidence/scaling.md has the figures
// and their limits.
package loadsim
