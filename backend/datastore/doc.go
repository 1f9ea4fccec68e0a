// Package datastore is the store on Google's Firestore in Datastore mode.
//
// # Entities
//
//	kind               key                              properties, unindexed unless said
//	CountmillCounter   the counter's name               shards, created (microseconds since 1970);
//	                                                    baseline, reset_at after a reset;
//	                                                    deleted_at (indexed) while it is deleted;
//	                                                    a group's remainder, remainder_high: see SetRemainders
//	CountmillShard     HHHHHHHH:name:n                  counter (indexed), count; tally: the number
//	                                                    of its folds; shards: the largest number of
//	                                                    shards that one of their aggregators used;
//	                                                    with a series bucketed: the part of count that
//	                                                    is in it; m<minute>: sums by the minute since
//	                                                    1970; buckets: about how many of these;
//	                                                    g<index>: the part of count that was folded by
//	                                                    the index
//	CountmillSeries    HHHHHHHH:name:YYYYMMDD           m<minute>; q<minute>: sums by the quarter hour;
//	                                                    due (indexed): the minute at which a sweep looks
//	CountmillApplied   the part's or reset's id in hex  fingerprint, fold, expire_at (for a TTL policy);
//	                                                    removed, reset_at instead of fingerprint, fold for
//	                                                    a reset; first, count for values of a sequence
//	                   the id in hex of a completion    parts, expire_at: parts of a message in a dead
//	                   marker:letter's key              letter (store.DeadLetterRef), beside the marker
//	CountmillJournal   16 random digits, 16 of the time place (indexed), data, expire_at (for a TTL policy)
//	CountmillJournalRow HHHHHHHH:name:place             the same, for one entry of a paged counter
//	CountmillDead      the letter's key                 source, time, reason, maybe, at, payload or chunks
//	CountmillDeadChunk the letter's key:hash:n          payload: a chunk of a letter over 900 KiB
//	CountmillWorker    the worker's id                  lag, last_commit, increments, entries, commits,
//	                                                    entities, duplicates, dead_letters, expire_at;
//	                                                    busiest: a list in JSON;
//	                                                    settings: the version that it uses
//	CountmillMeta      "meta"                           format, id, created, cache_key; the settings:
//	                                                    version, window, since, forget_before,
//	                                                    pace, pace_until, rules
//	CountmillIndexRange index:range                     from, to, retired, worker, until, round, read,
//	                                                    shards, remainders, corrected: see store.IndexRange
//	CountmillRemainder index:range:group                remainder: the range's part of the group's remainder
//	CountmillSequence  HHHHHHHH:name                    last: the last value; deleted_at, or null
//	CountmillProbe     random                           for a moment, when a store is opened
//
// A process refuses to open a database with rules that it does not know.
//
// HHHHHHHH are the upper 32 bits of wire.ShardHash: with neighbouring keys one tablet would get all
// the load.
//
// # A fold
//
// A fold is one call: a commit with a single-use transaction. It inserts the markers and increments the
// counts with property transforms, and reads nothing. No layer below this package repeats a call that
// may have reached the server: a repeated increment counts twice, unless its marker is in the same
// transaction. So this package calls the module's stubs. The module's client repeats commits unseen, has no
// single-use transaction, and drops the results of transforms and the times of commits and reads.
//
// A server may not support transforms: Google's older Datastore emulator ignores them and answers OK.
// [Open] detects that with a probe, and refuses the server. It also refuses a database with entity
// groups, which accepts only 25 entities a commit. Every later answer is checked as well.
//
// # Settings
//
// Each check reads the meta record, and with it how long a repeated part is recognised
// (store.Settings). ForgetBefore follows from the record and the service's time, so a process writes it
// only when somebody changes the window. A TTL policy removes markers by expire_at. That is safe
// because the policy and ForgetBefore use the same clock, the service's. expire_at is the time that the
// settings promised when the marker was written, and store.Settings.Changed keeps ForgetBefore ahead
// of it while the window grows.
//
// # Series
//
// A fold adds its buckets to properties of the shard, in the mutation of the count. A move reads a shard in
// a transaction, removes the buckets that it has read, and adds them to the archive, which is only ever added to.
// So a fold of any minute is right at any time: it makes its bucket anew. Commit.Archive names the
// minutes that a fold adds to the archive itself. A view reads both at its moment.
//
// # Indexes
//
// A fold by an index adds its delta to count and to g<index>, in one mutation. So the difference of the two
// moves only with folds without the index, and those end with Index.Since: a fold is blind, and this
// store cannot refuse one by older rules. The comment of SetRemainders says why workers that build an index
// beside each other leave the right remainders.
//
// # Resets
//
// A reset is a transaction that reads and writes the counter's record and a marker. Folds touch neither.
// When an aggregator grows a counter, it writes the record without reading it, by Maximum, and removes
// deleted_at. The service orders the two, and either order is right.
//
// # Reading
//
// The first look-up of a view is strong, and its read_time fixes the moment of all others. A server that
// sends no read_time, like the older emulator, is refused.
package datastore
