// Package aggregator folds the batches of a bus into the shards of a store, exactly
// once.
//
// # The life of a batch
//
//	bus ──► message ──► parts ──► window ──► jobs ──► attempt ──► store
//	          ▲                     ▲          ▲         │
//	          │                     │          │         ├─ applied, or was before
//	          └── ack ◄── settled ◄─┼──────────┼─────────┤
//	                                │          └─────────┼─ try again: same markers,
//	                                │                    │   new shards
//	                                └── followers ◄──────┤
//	                                                     └─ never ──► dead letter ──► ack
//
// A message is taken and held unacknowledged. Its parts go into the window, unless
// their ids are in process already: then the message waits for those. The window
// closes when it is full or has lingered, and is packed into jobs that fit the store.
// An attempt at a job makes sure that each counter has a record, or has the commit write
// it where the store takes that, picks a free shard for each, and commits markers
// and sums in one go. A part is settled when it is known to be applied, or stands in the
// dead letters. A message is acknowledged when all its parts are settled.
//
// One goroutine, the loop, owns all of that. Attempts, writes of dead letters and the
// worker's record run beside it and report over channels.
//
// # The promise
//
// The marker of a part is inserted in the commit that adds its entries, so a part
// counts once however often it is delivered and however often a commit is repeated,
// as long as its marker is remembered: the deduplication window, which the store keeps
// (package store). A part is tried only while its time is not before the store's
// ForgetBefore, asked anew before every attempt and again right before the commit, and its
// marker stays for two hours longer. The settings are read every ten seconds; no commit with
// markers begins by settings that were asked for over a minute ago.
//
// A record is remembered for an hour, by the store's time and by what has passed whatever
// the clocks say, and looked at again right before every commit. One of a counter that was
// deleted is as good as none: writing it anew ends the delete. A deleted counter is swept a
// day later, so no shard is written that no record names.
//
// A look-up of a marker that finds something proves that the part was applied. One
// that finds nothing proves nothing: only the insert decides.
//
// # What the store answers
//
//	answer                        means                    done
//	OK                            applied                  ack when the message's parts all are
//	ErrNotCounted                 OK, but nothing added    stop folding; Ready says why
//	ErrMarkerExists               nothing applied          drop the parts whose markers are found,
//	                                                       commit the rest; none found: one part a commit
//	ErrRefused                    nothing applied          halve until a part is refused alone: dead letter
//	ErrDeployment                 nothing applied          hold everything, back off to 30 s, not ready
//	ErrNotApplied                 nothing applied          try again later: the commit never began
//	error of a look-up, a raise   nothing applied          try again later
//	ErrContended                  maybe applied            the same markers with the next window, the
//	                                                       counters' records looked at again; from
//	                                                       the fourth time in halves
//	any other error of Fold       maybe applied            the same markers on other shards, with
//	                                                       full jitter; from the third time in halves
//	                                                       (one job only while nothing is answered)
//
// A batch of a newer wire version is not taken: it goes back to the bus, the later the older it
// is, and Ready says so. A person may ask for the replay of any letter that holds a batch (ReplayKey). An
// aggregator takes it as it takes messages, and removes it when its parts are settled. Before
// it takes a letter it inserts a marker for it (Decide), and drops a letter that was discarded.
//
// A part without an id needs no marker if its bus delivers it once (wire.DeliverOnce) and the
// store's outcomes are certain (store.Limits.CertainOutcome). With such a store the last row ends
// Run.
//
// # More shards
//
// A counter begins with few shards. What a shard tells with each fold (Told), and commits that
// contend, say when it needs more (internal/shards). Its record is raised beside the loop
// (growth), by whoever finds out first, and folds go on by the shards there are until it is.
// Others hear of more shards from a shard, or from the records they look at once an hour; they
// look at the record before they go by it. No number is ever lowered.
//
// # Requests with a key
//
// Parts that follow a head (package wire) wait until the head is applied or found to
// have been, with the fingerprint of their request. If it is refused they go into its
// dead letter: of a request that is refused nothing is counted.
package aggregator
