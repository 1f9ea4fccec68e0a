// Package plan works out, before anything runs, what a load costs on Pub/Sub and
// Datastore: messages, commits, entities, shards, stored markers, dollars; and what the
// classic sharded counter costs for the same.
//
// All of it is expectations in closed form, and nothing is fitted. The chain is that of an
// increment:
//
//	publisher   sends a message each linger and, first, the wait for an increment to
//	            begin it: linger + publishers/rate. It holds the distinct counters of
//	            that many draws, 24 to a part, a marker each.
//	aggregator  opens a window with a message and closes it after the window's linger:
//	            linger + aggregators/messages from one to the next, as messages of many
//	            publishers come like those of a Poisson process. It writes a shard for
//	            each distinct counter, once more for each further commit that the counter
//	            is in, and a marker for each part, at most 400 entities a commit.
//	reader      reads a counter, its record and N shards, when somebody asks for it and
//	            four fifths of its permitted age are used: every 0.8 * staleness +
//	            1/questions.
//
// N is what growth comes to (package shards, Grown): a counter's commits a second over what
// one shard takes, and up to half as many again, at least what a counter starts with and at
// most the cap.
//
// What it does not know: increments that come in bursts, requests with an
// Idempotency-Key (a message of their own kind: 24 counters a marker), repeats, lists,
// resets, restarts (an aggregator looks each marker up in its first minute).
package plan
