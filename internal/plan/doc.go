// Package plan computes the cost of a load on Pub/Sub and Datastore before anything runs:
// messages, commits, entities, shards, stored markers, and dollars. It also computes the cost of
// the classic sharded counter for the same load.
//
// All results are expectations in closed form; no parameter is fitted to measurements. The
// computation follows an increment:
//
//	publisher   sends a message for each linger, which begins with an increment: every
//	            linger + publishers/rate. The message has the distinct counters of that
//	            many draws, in parts of 24. Each part has a marker, and a message of several
//	            parts has one more, its completion marker.
//	aggregator  opens a window with a message and closes it after the window's linger:
//	            linger + aggregators/messages from one to the next, because messages of many
//	            publishers arrive like a Poisson process. For each commit, of at most 400
//	            entities, it writes a shard for each distinct counter in it and a marker for
//	            each part.
//	reader      reads a counter, its record and N shards, at the first request after four
//	            fifths of its permitted age: every 0.8 * staleness + 1/questions. If anybody
//	            watches a prefix, the reader reads its counters once a second.
//	groups      a commit writes one more shard for each group of its counters. The order of
//	            the cut keeps the counters of a group together if their names are alike up to
//	            the second ':'. A worker reads the shards of the index once, and again each
//	            day.
//	series      the shards of counters under a rule are emptied into an archive when they
//	            have 65 minutes. The archive has an entity for each counter and day.
//
// N is the result of growth (package shards, Grown): a counter's commits a second, divided by the
// commits that one shard sustains, and up to half as many again. It is at least the number of
// shards of a new counter, and at most the cap.
//
// The plan does not include the storage of the archive, which depends on the retention of rules.
// It does not include bursts of increments, requests with an Idempotency-Key (they have
// parts of their own), repeats, lists and resets either, nor restarts: in its first minute an
// aggregator looks up each marker.
package plan
