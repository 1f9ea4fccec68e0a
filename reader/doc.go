// Package reader serves totals: the sum of a counter's shards, the moment of that sum, and how
// far behind the aggregators are.
//
//	          Totals(counters, maxStaleness)
//	                       |
//	        maxStaleness > 0          maxStaleness = 0
//	               |                         |
//	 +-------------v------------+            |
//	 | cache: young enough, and |            |
//	 | carries the asked name?  |            |
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
//   - A total includes every fold that was committed by its AsOf. All totals that one call reads
//     from the store are of one moment.
//   - A total is never older than the caller's maxStaleness. With 0 the read begins after the
//     call: the sequence get, increment, get is never stale.
//   - From the commit of a reset on, no total includes the amount that it removed: the record is
//     read in the same view as the shards. A cached total may be from before the reset, if that
//     is within maxStaleness.
//   - An outdated number of shards costs a look-up, but never an increment.
//   - A total that does not fit 64 bits is an error, never a number.
//   - A caller that gives up does not fail other callers. No read outlives its callers.
//   - Memory is bounded by Config.Remember, by 32,768 keys of look-ups under way in the store, and by
//     131,072 keys of look-ups that wait for their turn, within Timeout. Beyond that calls get
//     countmill.ErrUnavailable.
//
// No total includes increments that are still on the bus or in an aggregator. Lag reports the age
// of the oldest of them.
//
// # Failures
//
//	what fails                       what callers see
//	-------------------------------  -----------------------------------------------
//	the store, or it is too slow     cached totals that are young enough, but of no groups; for
//	                                 others countmill.ErrUnavailable, after Timeout. One call in
//	                                 CheckEvery waits as long before it gets cached totals
//	the store cannot be written      nothing
//	the store is another database    countmill.ErrUnavailable, within CheckEvery; from then
//	                                 on cached totals are not served either
//	more reads than it can answer    countmill.ErrUnavailable, after Timeout, or at once if
//	                                 131,072 keys wait
//	a counter overflowed             *OverflowError of the calls that name it; List
//	                                 leaves it out and names it
//	the cache, or it is too slow     only delays: every error is a miss, and after
//	                                 five in a row the cache is skipped for 1 s
//	the cache mixes up answers       nothing: a cached total carries its name
//	the cache gives an old total     nothing: its age is checked at each use
//	the process that reads for all   other processes read themselves after 50 ms
//	the aggregators                  totals do not change; Lag is unknown once their
//	                                 records expire
//	aggregators' records not read    the last ones, while they are fresh
//	a clock is wrong                 nothing: ages are measured in the store's time,
//	                                 learned from its read times
//
// # Why one view
//
// A total needs several look-ups if a record names more shards than were remembered, or if there are more keys than one look-up takes. If the look-ups saw different
// moments, this could happen:
//
//	reader      looks up the record (2 shards) and shards 0 and 1
//	aggregator  moves 5 from shard 1 to another shard: -5 and +5 in one commit
//	reader      looks up further shards: the +5 without the -5
//
// # Why a caller joins only some reads
//
//	A  begins to read counter c: 7
//	B  increments c, and gets the answer that this is counted
//	B  asks for c with maxStaleness 0: if it joined A's read, it would get 7
//
// So a call with maxStaleness 0 reads by itself. A call with a larger maxStaleness joins a read
// that began at most maxStaleness before the call.
package reader
