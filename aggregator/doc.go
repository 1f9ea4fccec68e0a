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
// The aggregator takes a message and holds it unacknowledged. Its parts go into the window. If
// the id of a part is in process already, the message waits for that part instead. The window
// closes when it is full or has lingered. It is then packed into jobs that fit the store.
//
// An attempt at a job makes sure that each counter has a record; a store with GrowsInFold writes
// missing records in the commit. The attempt picks a free shard for each counter, and commits
// markers and sums in one go. A part is settled when it is known to be applied or is in the dead
// letters. A message is acknowledged when all its parts are settled.
//
// One goroutine, the loop, owns all of that state. Attempts, writes of dead letters, growth and
// the heartbeat run beside the loop and report to it over channels.
//
//	step                               file
//	take a message                     receive.go (take), decode.go
//	window, jobs                       window.go, pace.go, plan.go
//	attempt, and act on its outcome    attempt.go, records.go, inflight.go; settle.go
//	acknowledge                        receive.go (done); intake.go (messages that Pub/Sub gave up)
//	give back to the bus               newer.go
//	dead letters, and their replay     deadletter.go, deadletter_put.go; replay.go
//
// # The promise
//
// The commit that adds the entries of a part also inserts the part's marker. So a part counts
// once, however often it is delivered and however often its commit is repeated, as long as the
// store keeps the marker. Package store has the deduplication window.
//
// An aggregator tries a part only while its time is not before the store's ForgetBefore. It
// checks this before every attempt, and again right before the commit. The marker stays for two
// hours longer. The aggregator reads the settings every ten seconds. It begins no commit
// if it asked for its settings over a minute ago.
//
// The aggregator remembers a record for an hour, by whichever clock runs faster: the store's, or
// the machine's monotonic one. It checks the age again right before every commit. The record of a
// deleted counter counts as missing: writing it again ends the deletion. A deleted counter is
// swept a day later. So no commit writes a shard that no record names.
//
// If a look-up finds a marker, the part was applied. If it finds none, that proves nothing: only
// the insert decides.
//
// # The answers of the store
//
//	answer                        means                    done
//	OK                            applied                  ack when all parts of the message are
//	ErrNotCounted                 OK, but nothing added    stop folding; Ready says why
//	ErrMarkerExists               nothing applied          drop the parts whose markers are found,
//	                                                       commit the rest; none found: one part a commit
//	ErrRefused                    nothing applied          halve until a part is refused alone: dead letter
//	ErrDeployment                 nothing applied          hold everything, back off to 30 s, not ready
//	ErrOutdated                   nothing applied          read the settings now, try again later by them
//	ErrNotApplied                 nothing applied          try again later: the commit never began
//	error of a look-up or growth  nothing applied          try again later
//	ErrContended                  maybe applied            the same markers with the next window, the
//	                                                       counters' records looked at again; from
//	                                                       the fourth time in halves
//	any other error of Fold       maybe applied            the same markers on other shards, with
//	                                                       full jitter; from the third time in halves
//	                                                       (one job only while nothing is answered)
//
// The aggregator gives a batch of a newer wire version back to the bus, and Ready reports it. The
// older the batch, the longer the aggregator keeps it first.
//
// A person may ask for the replay of any dead letter that holds a batch (store.ReplayKey). An
// aggregator takes the letter as it takes a message, and removes it when its parts are settled.
// Before it takes a letter it inserts a marker for it (store.DecideDeadLetter), and it drops a letter
// that was discarded.
//
// A part without an id needs no marker if its bus delivers it once (wire.DeliverOnce) and the
// store's outcomes are certain (store.Limits.CertainOutcome). With such a store the last row ends
// Run.
//
// # Groups
//
// A counter of an index (store.Index) is in a group, which is a counter too. The commit that adds to the
// counter adds the same to the group, and notes with the counter's shard that it did. Groups and
// notes go by one snapshot of the rules, and the commit has its version: a store may refuse it.
//
// # More shards
//
// A counter begins with few shards. Two signals say when it needs more (internal/shards): the
// store's answer to each fold (store.ShardStats), and commits that contend. The first aggregator
// to notice grows the record, beside the loop. Folds use the old shards until the record is
// durable.
//
// Other aggregators learn of new shards from the answer of a shard, or when they read the record
// again after an hour. They read the record before they use a new shard. No number of shards is
// ever lowered.
//
// # Requests with a key
//
// Parts that follow a head (package wire) wait until the head is applied, or was applied before
// with the fingerprint of their request. If the head is refused, they go into its dead letter:
// nothing of a refused request is counted.
package aggregator
