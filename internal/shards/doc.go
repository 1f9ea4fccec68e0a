// Package shards decides, for one aggregator, which shard of a counter a commit adds to,
// and when a counter needs more of them.
//
// Nobody is asked and nobody is told: each aggregator goes by what comes back with its own
// commits. The mutation that adds to a shard changes two more properties of the same entity,
// which is no further write:
//
//   - tally := max(tally, Floor(now)) + 1. It counts the commits of everybody to this shard
//     since the epoch began, and starts anew with each epoch. The store's answer (End.Tally)
//     tells whoever commits how much the shard has to do, without a memory of it, and a
//     counter that is not hot is known by a tally of 1.
//   - shards := max(shards, n), with the n that the committer goes by. The answer is the
//     largest number that anybody went by who committed to this shard. That is how a raise
//     gets around: who commits where one was who knows of it, knows of it too. Whoever passes
//     a number on has it from the counter's record, or from one who has, so the record names it.
//
// The caller keeps the number of shards n of each counter, raises the record to what Done
// asks for before it goes by that number, and goes by larger numbers that the store answers. A
// commit that was given up because of others answers nothing: before it is tried again its
// counters' records are read again, and what it holds waits for the next window. On its own it
// would be one more commit to the shard that has too many, and halves of it two; and when the
// counter has its shards, all those commits would look like a load that calls for more.
//
// docs/evidence/scaling.md has what this comes to with up to a thousand aggregators.
package shards
