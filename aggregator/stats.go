package aggregator

import (
	"sync/atomic"
	"time"
)

// Stats count since the aggregator was made.
type Stats struct {
	Messages    int64 // taken from the bus
	Parts       int64 // in them
	Entries     int64 // folded
	Commits     int64 // attempted
	Retries     int64 // of them that did not apply all their parts
	Contended   int64 // of them that the store gave up because of others
	Duplicates  int64 // parts that had been applied before, or were in process
	Late        int64 // parts applied when they were older than Config.Staleness
	DeadLetters int64 // written
	Replayed    int64 // dead letters that were asked for or can be read now, counted and removed
	Raised      int64 // records of counters written
	Grown       int64 // of them to give a counter more shards

	EntitiesWritten, EntitiesRead int64

	HeldMessages, HeldBytes int64 // not acknowledged yet
	WaitingLetters          int64 // dead letters that are not written yet

	HeldParts  int64 // with ids, in process
	Jobs       int64 // commits that are under way or are to be tried
	OpenShards int64 // that commits under way write

	// Lag is the age of the oldest increment that is held uncommitted.
	Lag time.Duration
	// Widened is how long windows wait beyond Config.Staleness.
	Widened time.Duration
	// LastCommit is zero before the first.
	LastCommit time.Time
}

type stats struct {
	messages, parts, entries, commits, retries, duplicates, late, deadLetters, replayed, raised, contended, grown atomic.Int64

	written, read atomic.Int64

	heldMessages, heldBytes, waitingLetters, heldParts, jobs atomic.Int64

	widened atomic.Int64 // nanoseconds

	oldest, lastCommit atomic.Int64 // Unix nanoseconds, 0 for none
}

func (s *stats) add(o *outcome) {
	s.commits.Add(int64(o.work.commits))
	s.written.Add(int64(o.work.written))
	s.read.Add(int64(o.work.read))
	s.raised.Add(int64(o.work.raised))
	s.contended.Add(int64(o.work.contended))
	s.entries.Add(int64(o.work.entries))
	if o.work.commits > 0 && len(o.rest) > 0 {
		s.retries.Add(1)
	}
}

// Stats returns the counts so far. Held and Lag are up to a second old.
func (a *Aggregator) Stats() Stats {
	s := &a.stats
	got := Stats{
		Messages: s.messages.Load(), Parts: s.parts.Load(), Entries: s.entries.Load(),
		Commits: s.commits.Load(), Retries: s.retries.Load(), Duplicates: s.duplicates.Load(),
		DeadLetters: s.deadLetters.Load(), Replayed: s.replayed.Load(), Raised: s.raised.Load(), Grown: s.grown.Load(), Contended: s.contended.Load(),
		EntitiesWritten: s.written.Load(), EntitiesRead: s.read.Load(),
		HeldMessages: s.heldMessages.Load(), HeldBytes: s.heldBytes.Load(),
		WaitingLetters: s.waitingLetters.Load(),
		HeldParts:      s.heldParts.Load(), Jobs: s.jobs.Load(), OpenShards: a.lanes.open(),
		Late: s.late.Load(), Widened: time.Duration(s.widened.Load()),
	}
	if ns := s.oldest.Load(); ns != 0 {
		got.Lag = max(a.clock.Now().Sub(time.Unix(0, ns)), 0)
	}
	if ns := s.lastCommit.Load(); ns != 0 {
		got.LastCommit = time.Unix(0, ns)
	}
	return got
}
