// Package reader serves totals: what the shards of a counter sum to, when that was
// true, and how far behind the aggregators are.
//
//	          Totals(counters, maxStaleness)
//	                       |
//	        maxStaleness > 0          maxStaleness = 0
//	               |                         |
//	 +-------------v------------+            |
//	 | cache: young enough, and |            |
//	 | the name that was asked? |            |
//	 +--+--------------------+--+            |
//	yes |                 no |               |
//	    |    +---------------v-------------+ |
//	    |    | one read for all callers of | |
//	    |    | the same set; one process   | |
//	    |    | reads, others wait 50 ms    | |
//	    |    +---------------+-------------+ |
//	    |                    |               |
//	    |          +---------v---------------v----------+
//	    |          | one View of the store: records and |
//	    |          | shards 0..n-1, summed in 128 bits  |
//	    |          +---------+--------------------------+
//	    v                    v
//	 source "cache"       source "store"
//
// # Promise
//
//   - A total holds every fold that was committed by its AsOf. All totals that one call
//     reads from the store are of one moment.
//   - It is never older than the caller's maxStaleness. With 0 the read begins after
//     the call: get, incr, get is never stale.
//   - What resets have taken off is in no total, from the reset's commit on: the record is
//     read in the same view as the shards. A total from a cache may be from before it, if
//     that is not longer ago than maxStaleness.
//   - An old idea of a counter's number of shards costs a look-up and never a count.
//   - A sum that does not fit 64 bits, or a shard at either end of them, is an error and
//     never a number.
//   - A caller that goes away fails no other, and no read outlives those who wait for it.
//   - Memory is bounded: by Config.Remember, and by the counters asked for at the time.
//
// Increments that are still on the bus or in an aggregator are in no total; Lag says
// how old the oldest of them is.
//
// # Failures
//
//	what fails                       what callers see
//	-------------------------------  -----------------------------------------------
//	the store, or it is too slow     cached totals that are young enough; for the
//	                                 rest countmill.ErrUnavailable, after Timeout
//	the store is another database    countmill.ErrUnavailable, within CheckEvery; from then
//	                                 on cached totals are not served either
//	a counter overflowed             *OverflowError of the calls that name it; List
//	                                 leaves it out and names it
//	the cache, or it is too slow     nothing but time: every error is a miss, and
//	                                 after five in a row it is left alone for 1 s
//	the cache mixes up answers       nothing: a cached total carries its name
//	the cache gives an old total     nothing: its age is checked at each use
//	the process that reads for all   the others read themselves after 50 ms
//	the aggregators                  totals stand still; Lag is unknown once their
//	                                 records expire
//	aggregators' records not read    the last ones, while they are fresh
//	a clock is wrong                 nothing: ages are reckoned in the store's time,
//	                                 learnt from its read times
//
// # Why one view
//
// A total takes several look-ups where a record names more shards than were remembered,
// where the store defers keys, and where there are more keys than it takes at once. If
// they saw different moments:
//
//	reader      looks up the record (2 shards) and shards 0 and 1
//	aggregator  moves 5 from shard 1 to another shard: -5 and +5 in one commit
//	reader      looks up the deferred rest: the +5 without the -5
//
// # Why a caller joins only some reads
//
//	A  begins to read counter c: 7
//	B  increments c, and is told that this is done
//	B  asks for c with maxStaleness 0: joining A's read it would be told 7
//
// So a call with maxStaleness 0 reads by itself, and one with more joins a read that
// began at most maxStaleness before the call.
package reader
