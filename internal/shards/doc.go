// Package shards decides, for one aggregator, to which shard of a counter a commit adds, and when
// the counter needs more shards.
//
// Aggregators do not talk to each other. Each learns only from the answers to its own commits.
// The write to a shard also updates two more properties of the same entity, at no further write:
//
//   - tally := max(tally, Floor(now)) + 1. It counts the commits of all aggregators to this shard
//     since the epoch began, and starts again in each epoch. The store's answer (End.Tally) shows
//     how busy the shard is, without memory in the aggregator. A counter that is not busy shows a
//     tally of 1.
//   - shards := max(shards, n), where n is the number of shards that the committer knows of. The
//     answer is the largest number known to any committer of this shard, so new numbers spread
//     through commits. Each number comes from the counter's record, directly or through others,
//     so the record names it.
//
// The caller keeps the number of shards n of each counter. When Done asks for more, it grows the
// record first and then uses the new number. It also uses larger numbers that the store answers.
//
// A commit that ends with store.ErrContended gets no answer. Before it is tried again the caller
// reads the records of its counters, and its parts wait for the next window. Alone it would be
// one more commit to a shard that has too many, and in halves it would be two. When the counter
// has grown, all those commits would look like load that needs even more shards.
//
// docs/evidence/scaling.md has the results for up to a thousand aggregators.
package shards
