package aggregator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

// settle acts on the outcome of an attempt; doc.go has the table.
func (l *loop) settle(o outcome) {
	l.a.stats.add(&o)
	l.countLate(o.applied)
	// Before the parts: a message whose completion was in their commit needs no other.
	for _, t := range o.completed {
		l.completionApplied(t)
	}
	// Folds use new shards only after the record that names them is durable.
	l.growth.want(o.wants)
	for _, p := range o.applied {
		l.applied(p)
	}
	for _, p := range o.duplicates {
		if !p.isCompletion() {
			l.a.stats.duplicates.Add(1)
		}
		l.applied(p)
	}
	for _, c := range o.conflicts {
		l.conflict(c)
	}
	if o.verdict == blocked {
		l.wait(o)
		return
	}
	l.wakeBlocked()
	if len(o.applied) > 0 {
		l.a.stats.lastCommit.Store(l.a.cfg.env.Now().UnixMicro())
	}
	if len(o.rest) == 0 {
		if o.job.attempts == 0 && !o.job.closed.IsZero() {
			l.pace.folded(time.Since(o.job.closed))
		}
		l.answered()
		return
	}
	o.job.parts, o.job.completions = o.rest, o.completions
	l.retry(o)
}

// countLate counts the parts that were older than Config.CountWithin when they were applied.
func (l *loop) countLate(applied []*part) {
	budget := l.a.cfg.CountWithin
	if budget == 0 {
		return
	}
	now := l.a.clock.Now()
	for _, p := range applied {
		if !p.isCompletion() && now.Sub(p.holder.born) > budget {
			l.a.stats.late.Add(1)
		}
	}
}

// applied ends the processing of a part whose increments are in the store. Its rivals are refused
// without asking the store.
func (l *loop) applied(p *part) {
	p.holder.final = p.holder.final || !p.marked
	p.endCompletion()
	for _, rival := range p.takeRivals() {
		l.refuse(rival, store.ReasonIDReused, false)
	}
	l.forget(p)
	l.follow(p)
	p.eachHolder(l.done)
}

// conflict refuses a part and those of its rivals that would be refused like it, after a commit for each. The others are copies of
// what was applied.
func (l *loop) conflict(c conflict) {
	if c.company != nil {
		c.company.rivals = slices.DeleteFunc(c.company.rivals, func(rival *part) bool {
			reused := rival.fingerprint != c.applied
			if reused {
				l.refuse(rival, store.ReasonIDReused, false)
			}
			return reused
		})
	}
	l.refuse(c.part, store.ReasonIDReused, false)
}

// wait parks a job until another commit ends. If some commit has released its shards since the
// job asked for them, the job may have missed the wake-up, so it is tried again at once.
func (l *loop) wait(o outcome) {
	o.job.parts, o.job.completions = o.rest, o.completions
	o.job.waits = o.freed == l.a.inflight.freed.Load()
	l.jobs = append(l.jobs, o.job)
}

func (l *loop) wakeBlocked() {
	for _, j := range l.jobs {
		j.waits = false
	}
}

// answered notes that the store has answered, even with an error.
func (l *loop) answered() { l.failures, l.halved, l.stuck = 0, 0, false }

// retry queues the rest of a job according to the verdict.
func (l *loop) retry(o outcome) {
	j := o.job
	switch o.verdict {
	case again:
		j.lookup = false
		l.answered()
		l.jobs = append(l.jobs, j)
	case outdated:
		l.jobs = append(l.jobs, j)
	case superseded:
		// The check is under way before the next attempt, which comes later and later: nothing turns
		// in a loop if the answer has older rules again.
		l.answered()
		l.a.wantSettings()
		l.later(j)
		l.jobs = append(l.jobs, j)
	case split:
		l.split(j)
	case refused:
		l.afterRefusal(j, o.err)
	case alone:
		l.answered()
		l.later(j)
		l.jobs = append(l.jobs, j.singles()...)
	case unreached:
		l.afterUnreached(j, o.err)
	case ignored:
		l.halted = o.err
		l.a.cfg.Logger.Error("folding stopped", "err", o.err)
		l.jobs = append(l.jobs, j)
	case stuck:
		l.stuck = true
		l.later(j)
		l.warn("folding paused: the store refuses this deployment", o.err, j)
		l.jobs = append(l.jobs, j)
	default:
		l.afterUnknown(j, o.err)
	}
}

// split makes a job smaller. One part fits, but for the completions.
func (l *loop) split(j *job) {
	jobs := j.halve()
	jobs[0].completions = nil
	l.jobs = append(l.jobs, jobs...)
}

// afterUnreached retries a job later.
func (l *loop) afterUnreached(j *job, err error) {
	l.failures++
	l.later(j)
	l.warn("store not reached, will try again", err, j)
	l.jobs = append(l.jobs, j)
}

// afterRefusal halves the job until one part is refused alone.
func (l *loop) afterRefusal(j *job, err error) {
	l.answered()
	if len(j.parts) > 1 {
		l.jobs = append(l.jobs, j.halve()...)
		return
	}
	l.refuse(j.parts[0], err.Error(), j.parts[0].maybe)
}

// afterUnknown retries the same markers on other shards. From the third time it halves the job,
// because a commit that is too large for its time-out would never succeed.
func (l *loop) afterUnknown(j *job, err error) {
	if l.a.limits.CertainOutcome {
		l.fatal = fmt.Errorf("aggregator: a commit has an unknown outcome, so the store is broken: %w", err)
		return
	}
	for _, p := range j.parts {
		p.maybe = true
	}
	if errors.Is(err, store.ErrContended) {
		l.afterContention(j, err)
		return
	}
	l.failures++
	l.later(j)
	l.pace.failed(j.attempts, j.widened)
	j.lookup, j.contended = true, false
	l.warn("commit has an unknown outcome, will try again", err, j)
	if j.attempts >= 3 && l.mayHalve(j) {
		l.jobs = append(l.jobs, j.halve()...)
		return
	}
	l.jobs = append(l.jobs, j)
}

// patience is the number of attempts for which a contended job stays whole.
const patience = 4

// afterContention leaves the job to the next window, which includes its parts. Alone the job
// would be one more commit to shards that have too many, and in halves it would be two. After
// patience attempts it is halved, because it may write more shards than are ever free together.
// Most of these commits were not applied, so markers are not looked up first.
func (l *loop) afterContention(j *job, err error) {
	l.answered()
	l.later(j)
	l.pace.failed(j.attempts, j.widened)
	j.contended = true
	l.warn("commit gave up under contention, will try again", err, j)
	switch {
	case j.attempts > 2*patience:
		// Halving did not help, and only makes more commits.
		j.attempts, j.half = 0, false
	case j.apart():
		l.jobs = append(l.jobs, j.halve()...)
		return
	}
	l.jobs = append(l.jobs, j)
}

// apart reports whether a contended job should be halved. A job of a single counter should not:
// its halves would contend with each other.
func (j *job) apart() bool {
	if j.attempts < patience {
		return false
	}
	first := ""
	for _, p := range j.parts {
		for i := range p.Entries {
			if first == "" {
				first = p.Entries[i].Counter
			}
			if p.Entries[i].Counter != first {
				return true
			}
		}
	}
	return false
}

// takeContended takes the contended jobs off the queue for the next window. attempts is the
// largest number of attempts of one of them.
func (l *loop) takeContended() (parts []*part, attempts int) {
	l.jobs = slices.DeleteFunc(l.jobs, func(j *job) bool {
		if !j.contended || j.half || j.apart() {
			return false
		}
		parts, attempts = append(parts, j.parts...), max(attempts, j.attempts)
		return true
	})
	return parts, attempts
}

// mayHalve reports whether the size of the job can be why it got no answer. While the store
// answers nothing, only one job is taken apart to find out. The others stay packed: as single
// parts they would cost many times the commits when the store is available again.
func (l *loop) mayHalve(j *job) bool {
	if l.failures < away {
		return true
	}
	if l.halved > 0 && len(j.parts) > l.halved {
		return false
	}
	l.halved = (len(j.parts) + 1) / 2
	return true
}

func (l *loop) later(j *job) {
	j.attempts++
	j.after = time.Now().Add(l.backoff(j.attempts))
}

func (l *loop) warn(message string, err error, j *job) {
	l.a.cfg.Logger.Warn(message, "err", err, "parts", len(j.parts), "attempts", j.attempts)
}
