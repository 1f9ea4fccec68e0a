package aggregator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
)

// errUnchecked: the aggregator folds nothing before the first answer of the store. Until then it
// does not know the store's time, which decides which ids are forgotten.
var errUnchecked = errors.New("it has not answered yet")

// recheckEvery replaces store.CheckEvery while a check fails or the settings are too old. Folding
// waits meanwhile, and one lost answer may be the only reason.
const recheckEvery = time.Second

// lastWord bounds the last write of the worker record, at the end of Run.
const lastWord = time.Second

// A heartbeat writes the worker record and checks the database, beside the loop.
type heartbeat struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

func startHeartbeat(a *Aggregator, checks chan<- error) *heartbeat {
	ctx, cancel := context.WithCancel(context.Background())
	n := &heartbeat{cancel: cancel}
	for _, run := range []func(){
		func() { a.beatAll(ctx) },
		func() { a.checkAll(ctx, checks) },
	} {
		n.wait.Add(1)
		a.cfg.env.Go(func() {
			defer n.wait.Done()
			run()
		})
	}
	return n
}

// stop ends the heartbeat. The last record has expired already, so that readers do not wait for
// an aggregator that has stopped.
func (n *heartbeat) stop() {
	n.cancel()
	n.wait.Wait()
}

// beatSoon is the first interval between records while the aggregator is stalled. The interval
// doubles up to HeartbeatEvery. Most often the aggregator has just started, and readers should
// soon learn that it takes messages. The odd microseconds keep the beats apart from the audits.
const beatSoon = 250*time.Millisecond + 137*time.Microsecond

func (a *Aggregator) beatAll(ctx context.Context) {
	soon := beatSoon
	for ctx.Err() == nil {
		wait := a.cfg.HeartbeatEvery
		if a.Stats().Stalled {
			wait, soon = min(soon, wait), min(2*soon, wait)
		} else {
			soon = beatSoon
		}
		next := time.NewTimer(wait)
		a.beat(ctx, min(a.cfg.CommitTimeout, a.cfg.HeartbeatEvery), a.clock.Now().Add(3*a.cfg.HeartbeatEvery))
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
		}
	}
	a.beat(context.WithoutCancel(ctx), lastWord, a.clock.Now().Add(-store.WorkerLate))
}

func (a *Aggregator) beat(ctx context.Context, limit time.Duration, expires time.Time) {
	s := a.Stats()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.store.Beat(ctx, store.Worker{
		ID: a.cfg.WorkerID, Lag: s.Lag, Stalled: s.Stalled, Skew: s.Skew, LastCommit: s.LastCommit, Expires: expires,
		Increments: s.Increments, Entries: s.Entries, Commits: s.Commits, Entities: s.EntitiesWritten, Duplicates: s.Duplicates,
		DeadLetters: s.DeadLetters, LastDeadLetter: s.LastDeadLetter, AtLimit: a.inflight.atLimit(), Setup: a.cfg.Setup, Busiest: a.busiest.take(a.cfg.HeartbeatEvery), Settings: a.Settings().Version,
	})
	if err == nil {
		a.beatsMissed.Store(0)
		return
	}
	a.beatsMissed.Add(1)
	a.cfg.Logger.Warn("worker record not written", "err", err)
}

// fewBeats is how many heartbeats in a row may be missed without a word: the record of the last one is still fresh.
const fewBeats = 2

func (a *Aggregator) checkAll(ctx context.Context, checks chan<- error) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	var before error
	var asked chan struct{} // by ReadSettings; nil if the check is a regular one
	for ctx.Err() == nil {
		err := a.check(ctx)
		a.usable.Store(err == nil)
		if asked != nil {
			close(asked)
			asked = nil
		}
		tick.Reset(recheckEvery)
		if ctx.Err() == nil {
			a.logCheck(before, err)
			before = err
		}
		select {
		case checks <- err:
		case <-ctx.Done():
			return
		}
		// Ask again, also after a good answer: the database can be swapped later.
		for waited := time.Duration(0); waited < store.CheckEvery && asked == nil; waited += recheckEvery {
			select {
			case <-tick.C:
			case asked = <-a.asked:
			case <-ctx.Done():
				return
			}
			if err != nil || a.outdated() {
				break
			}
		}
	}
}

// check asks the store whether it is still the same database, and learns its time and settings.
func (a *Aggregator) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CommitTimeout)
	defer cancel()
	asked, began := a.aging.age(), a.clock.Moment()
	checked, err := a.store.Check(ctx)
	if err != nil {
		return err
	}
	if a.clock.Learn(checked.At, began); !a.clock.Known() {
		return errUnchecked // the call took too long to learn the time from
	}
	// From here on parts are refused, and markers made, by these settings.
	if before := a.settings.Load(); before.Rules.Oldest() != checked.Settings.Rules.Oldest() || before.Restores != checked.Settings.Restores {
		a.records.forget() // the groups of a deleted index have no records any more, and a restored database may lack any
	}
	a.settings.Store(&snapshot{checked.Settings, asked})
	return nil
}

// logCheck logs the first of several failures, and the first success after them.
func (a *Aggregator) logCheck(before, err error) {
	switch {
	case before == nil && err != nil:
		a.cfg.Logger.Error("folding paused: the store is another database or cannot be used", "err", err)
	case before != nil && err == nil:
		a.cfg.Logger.Info("folding resumed: the store can be used again")
	}
}

// audit computes lag and readiness for callers in other goroutines.
func (l *loop) audit() {
	l.audited = time.Now()
	l.measure()
	reason := l.reason()
	s := &l.a.stats
	s.widened.Store(int64(l.pace.widened))
	s.waitingDeadLetters.Store(int64(len(l.letters)))
	s.heldParts.Store(int64(len(l.known)))
	s.jobs.Store(int64(len(l.jobs) + l.running))
	s.taking.Store(reason == nil && !l.draining)
	if reason == nil { // it still takes messages of this version
		reason = l.newer.reason(l.audited)
	}
	l.a.state.Store(&state{reason: reason, degraded: l.degraded()})
	l.writtenLog.write(l.a.cfg.Logger, l.audited)
}

// degraded describes the work that waits while the aggregator takes and folds messages.
func (l *loop) degraded() string {
	if l.putFails == 0 && !l.crowded() {
		return ""
	}
	return fmt.Sprintf("%d dead letters are not written yet, and their messages wait", len(l.letters))
}

func (l *loop) reason() error {
	switch {
	case l.halted != nil:
		return fmt.Errorf("folding has stopped: %w", l.halted)
	case l.checked != nil:
		return fmt.Errorf("the store is not the one that was opened, or cannot be used: %w", l.checked)
	case l.a.outdated():
		return errOutdated
	case l.stuck:
		return errors.New("the store refuses this deployment; the log has the answer")
	case l.failures >= away:
		return fmt.Errorf("the last %d commits failed", l.failures)
	case l.full() && (l.putFails > 0 || l.crowded()):
		return fmt.Errorf("the bound of held messages is reached, and %d dead letters are not written yet", len(l.letters))
	case l.messages == nil:
		return errors.New("not subscribed to the bus")
	}
	return nil
}
