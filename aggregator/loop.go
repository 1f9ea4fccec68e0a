package aggregator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/time/rate"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/wire"
)

// The loop is the one goroutine that owns everything that the aggregator holds. Attempts, writes
// of dead letters and the heartbeat run beside it and report to it over channels.
type loop struct {
	a       *Aggregator
	started time.Time

	messages   <-chan *message.Message
	resub      <-chan subscription // not nil while a Subscribe is under way
	holding    map[*held]struct{}
	heldMemory int // estimated, in bytes

	window      window
	pace        pace
	jobs        []*job
	completions []*part // of messages whose other parts are settled; in no job yet
	// known has every part with a marker that is in the window, in completions or in a job.
	known map[wire.PartID]*part

	running  int
	outcomes chan outcome
	failures int // attempts in a row that the store did not answer
	halved   int // size of the job that mayHalve takes apart; 0 for none
	stuck    bool
	halted   error // the store answers OK but does not add; never reset
	checked  error // the result of the last check of the database
	fatal    error

	letters    []*deadLetter
	putting    bool
	puts       chan putResult
	putFails   int
	putAfter   time.Time
	writtenLog writtenLog
	limiter    *rate.Limiter

	replay replay
	growth growth
	newer  newer

	checks   chan error
	draining bool
	deadline time.Time // of the drain; zero before it
	timer    *time.Timer
	// audited is when lag and readiness were last computed.
	audited time.Time
}

// lookupFirst is how long after the start the aggregator looks up markers before a commit. Most
// duplicates arrive then, when the messages of a dead aggregator come back. It does not do so
// with a store without a limit of entities, which looks up each marker in the commit at little
// cost.
const lookupFirst = time.Minute

// away is the number of failed attempts in a row after which the aggregator takes no messages.
const away = 8

// auditEvery is the interval at which lag and readiness are computed.
const auditEvery = time.Second

func newLoop(a *Aggregator) *loop {
	return &loop{
		a:        a,
		pace:     newPace(&a.cfg),
		holding:  make(map[*held]struct{}),
		known:    make(map[wire.PartID]*part),
		outcomes: make(chan outcome, a.cfg.Commits),
		puts:     make(chan putResult, 1),
		replay:   replay{answers: make(chan replayAnswer, 1)},
		growth:   newGrowth(),
		checks:   make(chan error, 1),
		checked:  errUnchecked,
		limiter:  rate.NewLimiter(rate.Limit(a.cfg.DeadLetterRate), a.cfg.DeadLetterRate),
	}
}

func (l *loop) run(ctx context.Context) error {
	l.started = time.Now()
	l.replay.next = l.started.Add(l.a.cfg.env.Jitter(replayEvery / 2))
	l.timer = time.NewTimer(0)
	defer l.timer.Stop()
	// The subscription outlives ctx. Its end gives every message back to the bus at once, also
	// the messages whose commit is under way.
	subscription, unsubscribe := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		unsubscribe()
		if l.resub != nil {
			<-l.resub
		}
	}()
	l.subscribe(subscription, 0)
	heartbeat := startHeartbeat(l.a, l.checks)
	defer heartbeat.stop()

	stop := ctx.Done()
	var deadline <-chan time.Time
	for {
		l.launch()
		if l.fatal != nil || l.draining && len(l.holding) == 0 && !l.replay.calling {
			break
		}
		l.setTimer()
		select {
		case m, ok := <-l.intake():
			if !ok {
				l.messages = nil
				l.subscribe(subscription, time.Second)
				continue
			}
			l.receive(m)
		case s := <-l.resub:
			l.resub = nil
			l.subscribed(subscription, s)
		case o := <-l.outcomes:
			l.running--
			l.settle(o)
		case <-l.a.folded:
			l.wakeBlocked()
		case b := <-l.puts:
			l.afterPut(b)
		case e := <-l.replay.answers:
			l.afterReplay(e)
		case g := <-l.growth.answers:
			l.afterGrowth(g)
		case l.checked = <-l.checks:
			l.audit()
		case <-l.timer.C:
		case <-stop:
			stop, l.draining = nil, true
			l.hurry()
			l.deadline = time.Now().Add(l.a.cfg.DrainTimeout)
			t := time.NewTimer(l.a.cfg.DrainTimeout)
			defer t.Stop()
			deadline = t.C
		case <-deadline:
			return l.giveUp()
		}
	}
	l.waitAttempts()
	return l.fatal
}

// hurry ends all back-offs: a drain has no time for them, and the store may be available again.
func (l *loop) hurry() {
	for _, j := range l.jobs {
		j.after = time.Time{}
	}
	l.putAfter = time.Time{}
	l.giveBack(time.Now())
}

// giveUp ends a drain whose time is up. It aborts the calls to the store, and gives all held
// messages back to the bus.
func (l *loop) giveUp() error {
	l.a.endCalls()
	l.waitAttempts()
	if l.fatal != nil {
		return l.fatal
	}
	n := 0
	for h := range l.holding {
		if h.letter != "" {
			continue // a dead letter stays in the store
		}
		n++
		// Not settled, so the bus has to deliver it again.
		if !h.final {
			h.msg.Nack()
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("aggregator: %d messages were not settled within %s and went back to the bus", n, l.a.cfg.DrainTimeout)
}

// waitAttempts waits for all calls beside the loop, and settles the attempts and letters.
func (l *loop) waitAttempts() {
	for l.running > 0 {
		o := <-l.outcomes
		l.running--
		l.settle(o)
	}
	if l.putting {
		l.afterPut(<-l.puts)
	}
	l.writtenLog.write(l.a.cfg.Logger, l.writtenLog.next)
	if l.replay.calling {
		<-l.replay.answers
	}
	l.growth.end()
}

// intake is the channel of messages, or nil while the aggregator takes none: too much is held,
// the window is full, the store is unavailable, or the aggregator drains. A full window waits for
// a commit slot. A store without a limit of entities gets the window as one commit, which must
// stay below CommitTimeout.
func (l *loop) intake() <-chan *message.Message {
	if l.full() || l.window.full(&l.a.cfg) || l.draining || l.isAway() {
		return nil
	}
	return l.messages
}

// full reports whether the aggregator holds as much as it may. Below that bound it takes a
// message of any size, so that no message waits for ever.
func (l *loop) full() bool {
	return len(l.holding) >= l.a.cfg.HeldMessages || l.heldMemory >= l.a.cfg.HeldMemory
}

// isAway reports whether the store is unavailable at the moment.
func (l *loop) isAway() bool {
	return l.halted != nil || l.checked != nil || l.stuck || l.failures >= away
}

// A subscription is the result of a Subscribe.
type subscription struct {
	messages <-chan *message.Message
	err      error
	delay    time.Duration
}

// subscribe calls Subscribe after delay, beside the loop, because the call may block.
func (l *loop) subscribe(ctx context.Context, delay time.Duration) {
	answer := make(chan subscription, 1)
	l.resub = answer
	l.a.cfg.env.Go(func() {
		if delay > 0 && !clock.Sleep(ctx, delay) {
			answer <- subscription{err: ctx.Err()}
			return
		}
		messages, err := l.a.bus.Subscribe(ctx, l.a.cfg.Topic)
		answer <- subscription{messages, err, delay}
	})
}

func (l *loop) subscribed(ctx context.Context, s subscription) {
	switch {
	case l.draining:
	case s.err == nil:
		l.messages = s.messages
	case errors.Is(s.err, countmill.ErrClosed):
		l.fatal = fmt.Errorf("aggregator: subscribe: %w", s.err)
	default:
		l.a.cfg.Logger.Warn("not subscribed, will try again", "topic", l.a.cfg.Topic, "err", s.err)
		l.subscribe(ctx, min(2*s.delay+100*time.Millisecond, 30*time.Second))
	}
	l.audit()
}

// launch starts all work that can begin now.
func (l *loop) launch() {
	now := time.Now()
	if now.Sub(l.audited) >= auditEvery {
		l.audit()
	}
	l.giveBack(now)
	if l.halted != nil || l.checked != nil || l.fatal != nil {
		return
	}
	if l.running == 0 && len(l.jobs) == 0 {
		l.answered() // nothing is left that could find out that the store is available again
	}
	l.advanceReplay(now)
	l.grow(now)
	for l.running < l.a.cfg.Commits {
		j := l.nextJob(now)
		if j == nil {
			if !l.closeWindow(now) && !l.packCompletions() {
				break
			}
			continue
		}
		l.running++
		// No message is acknowledged before its parts are committed: settle does that, by the
		// outcome.
		l.a.cfg.env.Go(func() { l.outcomes <- l.a.attempt(j) })
	}
	l.putDeadLetters(now) // also those of jobs that have just become too old: nothing else would wake the loop for them
}

// nextJob takes the first job off the queue that may be tried now. None may be tried while the
// settings are outdated.
func (l *loop) nextJob(now time.Time) *job {
	if len(l.jobs) == 0 || l.a.outdated() {
		return nil
	}
	for i, j := range l.jobs {
		if j.waits || now.Before(j.after) {
			continue
		}
		l.jobs = slices.Delete(l.jobs, i, i+1)
		// Parts that passed the deduplication window while they waited: their markers may be forgotten.
		if l.dropExpired(j); len(j.parts) == 0 {
			return l.nextJob(now)
		}
		j.lookup = j.lookup || l.a.limits.Entities > 0 && now.Sub(l.started) < lookupFirst
		return j
	}
	return nil
}

// closeWindow packs the open window into jobs if it is due. While the store is unavailable the
// window stays open: parts that wait together are packed better.
func (l *loop) closeWindow(now time.Time) bool {
	w := &l.window
	if w.empty() || l.isAway() {
		return false
	}
	if l.anyBlocked() && !w.full(&l.a.cfg) {
		return false
	}
	// With a budget a full aggregator does not wait for the window: no more messages would come.
	due := l.draining || w.full(&l.a.cfg) || l.a.cfg.CountWithin > 0 && l.full() || !now.Before(l.pace.due(w))
	if !due {
		return false
	}
	parts, attempts := l.takeContended()
	contended := make(map[*part]bool, len(parts))
	for _, p := range parts {
		contended[p] = true
	}
	for _, j := range l.pack(slices.Concat(parts, l.takeCompletions(), w.take())) {
		if slices.ContainsFunc(j.parts, func(p *part) bool { return contended[p] }) {
			j.contended, j.attempts = true, attempts
		}
		j.closed, j.widened = now, l.pace.widened
		l.ride(j)
		l.jobs = append(l.jobs, j)
	}
	return true
}

// anyBlocked reports whether a job waits for a shard. Parts that arrive meanwhile are better
// gathered in the window than queued behind the job.
func (l *loop) anyBlocked() bool {
	for _, j := range l.jobs {
		if j.waits {
			return true
		}
	}
	return false
}

// setTimer wakes the loop when the next thing becomes due.
func (l *loop) setTimer() {
	now := time.Now()
	wake := l.audited.Add(auditEvery)
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(wake) {
			wake = t
		}
	}
	if !l.window.empty() {
		sooner(l.pace.due(&l.window))
	}
	for _, j := range l.jobs {
		sooner(j.after)
	}
	if len(l.letters) > 0 && !l.putting {
		sooner(l.putAfter)
	}
	if len(l.newer.waiting) > 0 {
		sooner(l.newer.waiting[0].due)
	}
	sooner(l.replay.next)
	sooner(l.growth.after)
	l.timer.Reset(wake.Sub(now))
}

// backoff is how long to wait after that many attempts: at most 30 s, and during a drain less than one.
func (l *loop) backoff(attempts int) time.Duration {
	if l.draining {
		attempts = min(attempts, 4)
	}
	return l.a.cfg.env.Backoff(attempts, 50*time.Millisecond, 30*time.Second)
}
