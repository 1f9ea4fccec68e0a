package aggregator

import (
	"sync/atomic"
	"time"
)

// Stats are counts since the aggregator was made, and its present state.
type Stats struct {
	Messages       int64 // taken from the bus
	Parts          int64 // in those messages
	Entries        int64 // folded
	Increments     int64 // that those entries are the sums of, as publishers count them
	Commits        int64 // attempted
	Retries        int64 // commits that did not apply all their parts
	Contended      int64 // commits that ended with store.ErrContended
	Duplicates     int64 // parts that were applied before or were in process
	Late           int64 // parts older than Config.CountWithin when they were applied
	Conflicts      int64 // parts reported in replies: their ids were applied with other increments
	DeadLetters    int64 // written
	Replayed       int64 // dead letters that were replayed and removed
	RecordsWritten int64 // counters' records written
	Grown          int64 // records written to give a counter more shards
	// Overflowed is the number of sums of counters that were added to an overflow group
	// (store.Index.Overflow). Commits with an unknown outcome are left out.
	Overflowed int64

	EntitiesWritten, EntitiesRead int64

	HeldMessages       int64 // not acknowledged yet, with the dead letters in replay
	HeldMemory         int64 // memory of the held messages, estimated in bytes
	WaitingDeadLetters int64 // dead letters not written yet

	HeldParts  int64 // parts with markers in process
	Jobs       int64 // commits under way or waiting
	OpenShards int64 // shards in commits under way

	// Added is the number of increments of other programs (store.Adder) that the last look found, which counts 10,000 at most.
	Added int64

	// Lag is the age of the oldest increment that is held uncommitted, and at least the time that
	// it was held; or of the oldest of Added, if that is older. Dead letters in replay do not count: they were days old before.
	Lag time.Duration
	// Stalled means that the aggregator takes no messages, so Lag does not cover the bus.
	Stalled bool
	// Replaying is the number of dead letters in replay; ReplayAge is how long the first one has
	// been.
	Replaying int64
	ReplayAge time.Duration
	// Widened is how long windows wait beyond Config.CountWithin.
	Widened time.Duration
	// Skew is the difference between the machine's clock and the store's, when it last learned it. The
	// aggregator is not ready above a minute.
	Skew time.Duration
	// LastCommit is zero before the first commit.
	LastCommit time.Time
	// LastDeadLetter is when a dead letter was last written; zero before the first.
	LastDeadLetter time.Time
}

type stats struct {
	messages, parts, entries, increments, commits, retries, duplicates, late, conflicts, deadLetters, replayed, recordsWritten, contended, grown, overflowed atomic.Int64

	written, read atomic.Int64

	heldMessages, heldMemory, waitingDeadLetters, replaying, heldParts, jobs atomic.Int64

	widened atomic.Int64 // nanoseconds

	waits, replays atomic.Pointer[wait] // of messages, and of letters
	added          atomic.Pointer[wait] // of increments of other programs
	addedWaiting   atomic.Int64         // their number
	taking         atomic.Bool          // messages
	lastCommit     atomic.Int64         // Unix microseconds, 0 for none
	lastDeadLetter atomic.Int64         // the same
}

func (s *stats) add(o *outcome) {
	s.commits.Add(int64(o.work.commits))
	s.written.Add(int64(o.work.written))
	s.read.Add(int64(o.work.read))
	s.recordsWritten.Add(int64(o.work.raised))
	s.contended.Add(int64(o.work.contended))
	s.entries.Add(int64(o.work.entries))
	s.increments.Add(o.work.increments)
	s.overflowed.Add(int64(o.work.overflowed))
	if o.work.commits > 0 && len(o.rest) > 0 {
		s.retries.Add(1)
	}
}

// Stats returns the counts so far. The numbers of held things are up to a second old, and Lag may
// include a message that was settled in that second. It may be called at any time.
func (a *Aggregator) Stats() Stats {
	s := &a.stats
	got := Stats{
		Messages: s.messages.Load(), Parts: s.parts.Load(), Entries: s.entries.Load(), Increments: s.increments.Load(),
		Commits: s.commits.Load(), Retries: s.retries.Load(), Duplicates: s.duplicates.Load(),
		Conflicts: s.conflicts.Load(), DeadLetters: s.deadLetters.Load(), Replayed: s.replayed.Load(), RecordsWritten: s.recordsWritten.Load(), Grown: s.grown.Load(), Contended: s.contended.Load(), Overflowed: s.overflowed.Load(),
		EntitiesWritten: s.written.Load(), EntitiesRead: s.read.Load(),
		HeldMessages: s.heldMessages.Load(), HeldMemory: s.heldMemory.Load(), Added: s.addedWaiting.Load(),
		WaitingDeadLetters: s.waitingDeadLetters.Load(), Replaying: s.replaying.Load(),
		HeldParts: s.heldParts.Load(), Jobs: s.jobs.Load(), OpenShards: a.inflight.open(),
		Late: s.late.Load(), Widened: time.Duration(s.widened.Load()), Skew: a.clock.Skew(),
	}
	got.Lag, got.Stalled = s.waits.Load().over(*s.added.Load()).age(a.clock.Now()), !s.taking.Load()
	if letters := s.replays.Load(); !letters.none() {
		got.ReplayAge = time.Since(letters.at)
	}
	if at := s.lastCommit.Load(); at != 0 {
		got.LastCommit = time.UnixMicro(at)
	}
	if at := s.lastDeadLetter.Load(); at != 0 {
		got.LastDeadLetter = time.UnixMicro(at)
	}
	return got
}
