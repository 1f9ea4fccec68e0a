package aggregator

import (
	"fmt"
	"time"
)

// settle acts on what came of an attempt; doc.go has the table.
func (l *loop) settle(o outcome) {
	l.a.stats.add(&o)
	for _, p := range o.applied {
		l.applied(p)
	}
	for _, p := range o.duplicates {
		l.a.stats.duplicates.Add(1)
		l.applied(p)
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
		l.a.stats.lastCommit.Store(l.a.cfg.Env.Now().UnixNano())
	}
	if len(o.rest) == 0 {
		l.answered()
		return
	}
	o.job.parts = o.rest
	l.retry(o)
}

const idReused = "id reused: applied before with other counters or deltas"

// applied is the end of a part whose increments are in the store. The store need not be
// asked about its rivals any more.
func (l *loop) applied(p *part) {
	p.holder.final = p.holder.final || !p.marked
	for _, rival := range p.rivals {
		l.refuse(rival, idReused, false)
	}
	p.rivals = nil
	l.forget(p)
	l.follow(p)
	p.eachHolder(l.done)
}

// wait leaves a job until another commit ends. Where none is under way any more, the
// shard that it waits for has become free in the meantime.
func (l *loop) wait(o outcome) {
	o.job.parts = o.rest
	o.job.waits = l.running > 0
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
	l.refuse(j.parts[0], err.Error(), j.parts[0].maybe)
}

// afterUnknown tries the same markers again on new random shards, from the third time
// in halves: a commit that is too large for its time-out would never end.
func (l *loop) afterUnknown(j *job, err error) {
	if l.a.cfg.SkipAnonymousMarkers {
		l.fatal = fmt.Errorf("aggregator: a commit without markers has an unknown outcome: %w", err)
		return
	}
	l.failures++
	for _, p := range j.parts {
		p.maybe = true
	}
	l.later(j)
	j.lookup = true
	l.warn("commit has an unknown outcome, will be tried again", err, j)
	if j.attempts >= 3 && l.mayHalve(j) {
		l.jobs = append(l.jobs, j.halve()...)
		return
	}
	l.jobs = append(l.jobs, j)
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
