// Package admin looks after a store. An [Admin] grows counters (gives them more shards), sets
// their totals back to 0, and deletes them. [DeadLetters] shows dead letters, replays and discards
// them. A [Verifier] finds stored data that is wrong, and repairs some of it.
//
//	      Grow            Reset, Delete
//	        |                   |
//	        |      look up: record and shards at one moment t
//	        |                   |
//	+-------v-------------------v----------+        +------------+
//	| record: shards, baseline, reset_at,  |        | shards     |
//	|         deleted_at                   |        |            |<-- folds, which
//	| marker of the reset's id             |        |            |    go on
//	+--------------------------------------+        +------------+
//
// A reset adds up the record and the shards at a moment t, and makes that sum the counter's
// baseline, in a transaction on the record and a marker for the reset's id. The total is the
// sum of the shards less the baseline. The transaction refuses a look-up that has not seen
// the last reset. So increments that were folded by t are gone, and later ones count. A fold
// neither waits nor fails, because it does not touch the record.
//
// A delete is a reset that records its time. A deleted counter does not exist, and is in no
// list, until its sum differs from the baseline. A day later its record and shards go
// together (Store.SweepCounters says when they stay).
//
// # Promise
//
//   - A counter's number of shards is never lowered.
//   - A reset removes each increment once: all removed increments and the total add up to
//     the counted increments. Done says how much was removed.
//   - A reset with an id is done once within the deduplication window, however often it is asked for,
//     and gets the same answer each time.
//   - Totals that were cached before a reset are served to callers that accept their age,
//     as ever: admin does not touch caches. A total with a later as_of always wins there.
//   - A late increment of a deleted counter counts, from 0.
//
// # Failures
//
//	what fails                       what callers see
//	-------------------------------  ------------------------------------------------
//	the look-up                      countmill.ErrUnavailable: nothing was done
//	the store refuses                countmill.ErrUnavailable: nothing was done
//	the transaction, or its answer   tried again under the same marker with a new
//	is lost                          look-up; after Timeout countmill.ErrOutcomeUnknown
//	another reset comes between      nothing: this one looks again, and removes the
//	                                 folds since the other's look
//	the store's clock was ahead at   nothing: the reset works, and its answer names the
//	the last reset                   moment that the clock shows now
//	a total does not fit 64 bits     nothing: the reset works
//	this process freezes between     nothing: a look-up over a minute old is not
//	look-up and transaction          applied, it looks again
//	the counter is swept and comes   nothing: the transaction sees that the record is
//	back between the two             another one, it looks again
//	a reset is asked for again       it resets the increments counted since, unless it
//	                                 has the same id
package admin
