package aggregator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// settle acts on what came of an attempt; doc.go has the table.
func (l *loop) settle(o outcome) {
	l.a.stats.add(&o)
	l.countLate(o.applied)
	// Folds use new shards only after the record that names them is durable.
	l.growth.want(o.wants)
	for _, p := range o.applied {
		l.applied(p, o.saysWhole(p))
	}
	for _, p := range o.duplicates {
		l.a.stats.duplicates.Add(1)
		if o.saysWhole(p) {
			l.a.stats.duplicates.Add(int64(len(p.rests)))
		}
		l.applied(p, o.saysWhole(p))
	}
	for _, p := range o.conflicts {
		l.refuse(p, idReused, false)
	}
	if o.verdict == blocked {
		l.wait(o)
		return
	}
	l.wakeBlocked()
	if len(o.applied) > 0 {
		l.a.stats.lastCommit.Store(l.a.cfg.Env.Now().UnixMicro())
	}
	if len(o.rest) == 0 {
		if o.job.attempts == 0 {
			l.pace.folded(time.Since(o.job.closed))
		}
		l.answered()
		return
	}
	o.job.parts = o.rest
	l.retry(o)
}

// countLate counts the parts that were applied later than the budget of staleness says.
func (l *loop) countLate(applied []*part) {
	budget := l.a.cfg.CountWithin
	if budget == 0 {
		return
	}
	now := l.a.clock.Now()
	for _, p := range applied {
		if now.Sub(p.holder.born) > budget {
			l.a.stats.late.Add(1)
		}
	}
}

const idReused = "id reused: applied before with other counters or deltas"

func (o *outcome) saysWhole(p *part) bool {
	_, ok := o.whole[p]
	return ok
}

// applied is the end of a part whose increments are in the store. The store need not be
// asked about its rivals any more. whole says that all rests of its request are there too.
func (l *loop) applied(p *part, whole bool) {
	p.takeApart()
	if whole {
		l.endRests(p)
	}
	p.holder.final = p.holder.final || !p.marked
	for _, rival := range p.takeRivals() {
		l.refuse(rival, idReused, false)
	}
	l.forget(p)
	l.follow(p)
	p.eachHolder(l.done)
}

// endRests is the end of the rests of a head whose marker says that they were applied with it.
func (l *loop) endRests(head *part) {
	if head.company == nil {
		return
	}
	var others []*part
	for _, f := range head.company.followers {
		if f.Kind != wire.Rest {
			others = append(others, f)
			continue
		}
		f.eachHolder(l.done)
	}
	head.company.followers = others
}

// wait leaves a job until another commit ends. Where one gave its shards back since the job asked
// for them, it may have been the one to wait for, and its outcome may be settled: then the job is
// tried again. Where none did, the outcome of the one to wait for is still to come.
func (l *loop) wait(o outcome) {
	o.job.parts = o.rest
	o.job.waits = l.running > 0 && o.freed == l.a.inflight.freed.Load()
	l.jobs = append(l.jobs, o.job)
}

func (l *loop) wakeBlocked() {
	for _, j := range l.jobs {
		j.waits = false
	}
}

// answered notes that the store works, whatever it said.
func (l *loop) answered() { l.failures, l.halved, l.stuck = 0, 0, false }

// retry queues what is left of a job by the verdict.
func (l *loop) retry(o outcome) {
	j := o.job
	switch o.verdict {
	case again:
		j.lookup = false
		l.answered()
		l.jobs = append(l.jobs, j)
	case outdated:
		l.jobs = append(l.jobs, j)
	case split:
		l.jobs = append(l.jobs, j.halve()...)
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
		l.a.cfg.Logger.Error("folding has stopped", "err", o.err)
		l.jobs = append(l.jobs, j)
	case stuck:
		l.stuck = true
		l.later(j)
		l.warn("the deployment stops folding", o.err, j)
		l.jobs = append(l.jobs, j)
	default:
		l.afterUnknown(j, o.err)
	}
}

// afterUnreached tries again later.
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
	if p := j.parts[0]; p.whole() { // the store may refuse one of its parts only
		p.takeApart()
		l.jobs = append(l.jobs, j)
		return
	}
	l.refuse(j.parts[0], err.Error(), j.parts[0].maybe)
}

// afterUnknown tries the same markers again on new random shards, from the third time
// in halves: a commit that is too large for its time-out would never end.
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
	l.warn("commit has an unknown outcome, will be tried again", err, j)
	if j.attempts >= 3 && l.mayHalve(j) {
		l.jobs = append(l.jobs, j.halve()...)
		return
	}
	l.jobs = append(l.jobs, j)
}

// patience is how often a job that contends stays whole.
const patience = 4

// afterContention leaves the job for the window that closes next, which takes it along: on its
// own it would be one more commit to shards that have too many, and in halves two. When that
// does not help it is tried in halves, as it may write more shards than are ever free together.
// The store answers, so it is not away, and the markers are not looked for first: most of
// these commits were not applied.
func (l *loop) afterContention(j *job, err error) {
	l.answered()
	l.later(j)
	l.pace.failed(j.attempts, j.widened)
	j.contended = true
	l.warn("commit given up because of others, will be tried again", err, j)
	switch {
	case j.attempts > 2*patience:
		// Smaller did not help either, and there are ever more of them.
		j.attempts, j.half = 0, false
	case j.apart():
		l.jobs = append(l.jobs, j.halve()...)
		return
	}
	l.jobs = append(l.jobs, j)
}

// apart reports whether a job that contends is to be tried in halves. One of a single counter
// would only contend with itself.
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

// takeContended takes the jobs off the queue that a window takes along, and returns how often
// they were tried.
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

// mayHalve reports whether size can be why the job has no answer. While nothing at all
// is answered one job is taken apart to find out, and the others stay as they are
// packed: in single parts they would cost many times the commits once the store is back.
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
