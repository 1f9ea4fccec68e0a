// Package datastore is the store on Google's Firestore in Datastore mode.
//
// # Entities
//
//	kind               key                              properties, unindexed unless said
//	CountmillCounter   the counter's name               shards, created (microseconds since 1970);
//	                                                    baseline, reset_at once it was reset;
//	                                                    deleted_at (indexed) while it is deleted
//	CountmillShard     HHHHHHHH:name:n                  counter (indexed), count; tally: how many
//	                                                    folds it takes; shards: the most that any
//	                                                    of their aggregators went by
//	CountmillApplied   the part's or reset's id in hex  fingerprint, fold, expire_at (for a TTL policy);
//	                                                    whole, true, where it is of a whole request;
//	                                                    removed, reset_at instead of fingerprint, fold
//	                                                    where it is of a reset
//	CountmillDead      the letter's key                 source, time, reason, maybe, at, payload or chunks
//	CountmillDeadChunk the letter's key:hash:n          payload: a piece of a letter over 900 KiB
//	CountmillWorker    the worker's id                  lag, last_commit, entries, commits, expire_at;
//	                                                    settings: the version that it goes by
//	CountmillMeta      "meta"                           format, id, created, cache_key; the settings:
//	                                                    version, window, since, forget_before,
//	                                                    pace, pace_until
//	CountmillProbe     random                           for a moment, when a store is opened
//
// Kept for later formats: grouped, bucketed and buckets in CountmillShard, rules in
// CountmillMeta, which a process refuses.
//
// HHHHHHHH are the upper 32 bits of wire.ShardHash: neighbouring keys would heat one
// tablet.
//
// # A fold
//
// A fold is one call: a commit with a single-use transaction that inserts the markers
// and increments the counts with property transforms. It reads nothing. Nothing below
// this package repeats a call that may have reached the server: an increment that is
// sent twice counts twice, unless its marker is in the same transaction.
//
// A server may not know transforms: Google's older Datastore emulator ignores them and
// answers OK. [Open] finds that out with a probe, and refuses it. So it does with a database
// with entity groups, which takes 25 entities a commit. Every later answer is checked as well.
//
// # Settings
//
// Each check reads the meta record, and with it for how long parts are recognised
// (store.Settings). ForgetBefore is worked out from the record and the service's time, and so
// is written only where somebody changes the window. A TTL policy removes markers by expire_at.
// That is enough: the policy and ForgetBefore go by the service's clock, and expire_at is the time that
// the settings promised when the marker was written; store.Settings.Changed keeps ForgetBefore ahead of it while the window grows.
//
// # Resets
//
// A reset is a transaction that reads and writes the counter's record and a marker. Folds
// touch neither. An aggregator's raise writes the record without reading it, by Maximum, and
// removes deleted_at: of the two the service orders one before the other, and either order is
// right.
//
// # Reading
//
// The first look-up of a view is strong, and its read_time pins all further ones. A server
// that gives no read_time, as the older emulator, is refused.
package datastore
