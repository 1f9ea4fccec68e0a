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
// An aggregator asks for more shards if the shards that it sees take more than 85 % of the commits a second that they
// sustain. The limit is 60 % while its commits are lost to contention or wait for a second. Four rules keep chance,
// and many aggregators, from growing a counter again and again:
//
//   - Only shards of the upper half count. In the lower half there may still be aggregators that have not heard of
//     the others.
//   - About four commits a second, of all aggregators together, are followed by a judgement. So the most mistaken of
//     a thousand does not decide, and a thousand do not write to the record.
//   - Observations are counted without rounding, each commit once, and must exceed the effect of chance.
//   - A counter grows by a quarter to a half. The less an aggregator has seen, the clearer the need must be. An
//     aggregator that loses four fifths of its commits doubles the number, and one with nearly all lost quadruples it.
package shards
