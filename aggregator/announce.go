package aggregator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errUnchecked is why nothing is folded before the store has answered for the first time:
// until then its time is not known, by which ids are forgotten.
var errUnchecked = errors.New("it has not answered yet")

// checkEvery is how often the store is asked whether it is still the same database.
const checkEvery = 10 * time.Second

// recheckEvery is how often while it says no: folding stands still meanwhile, and it may
// have been one lost answer.
const recheckEvery = time.Second

// lastWord is how long the end of Run may take to say that this worker has gone.
const lastWord = time.Second

// An announcer writes the worker's record and checks the database, beside the loop.
type announcer struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

func startAnnouncer(a *Aggregator, checks chan<- error) *announcer {
	ctx, cancel := context.WithCancel(context.Background())
	n := &announcer{cancel: cancel}
	for _, run := range []func(){
		func() { a.announceAll(ctx) },
		func() { a.checkAll(ctx, checks) },
	} {
		n.wait.Add(1)
		a.cfg.Env.Go(func() {
			defer n.wait.Done()
			run()
		})
	}
	return n
}

// stop ends the announcer; the record it leaves has expired, so that readers do not
// wait for an aggregator that has gone.
func (n *announcer) stop() {
	n.cancel()
	n.wait.Wait()
}

func (a *Aggregator) announceAll(ctx context.Context) {
	tick := time.NewTicker(a.cfg.AnnounceEvery)
	defer tick.Stop()
	for {
		stalled := a.announce(ctx, min(a.cfg.CommitTimeout, a.cfg.AnnounceEvery), a.clock.Now().Add(3*a.cfg.AnnounceEvery))
		a.awaitNews(ctx, tick.C, stalled)
		if ctx.Err() != nil {
			a.announce(context.WithoutCancel(ctx), lastWord, a.clock.Now())
			return
		}
	}
}

// turnDelay is how long a change of Stalled has to last before it is written down at once.
const turnDelay = 20 * time.Millisecond

// awaitNews waits until the next tick, or until Stalled differs from the record.
func (a *Aggregator) awaitNews(ctx context.Context, tick <-chan time.Time, stalled bool) {
	for {
		select {
		case <-tick:
			received(a.turned)
			return
		case <-a.turned:
		case <-ctx.Done():
			return
		}
		if received(tick) { // of two that are ready the tick comes first
			return
		}
		timer := time.NewTimer(turnDelay)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if received(a.turned); a.Stats().Stalled != stalled || ctx.Err() != nil {
			return
		}
	}
}

// received takes a value that waits in a channel.
func received[T any](c <-chan T) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// announce writes the record, and returns its Stalled.
func (a *Aggregator) announce(ctx context.Context, limit time.Duration, expires time.Time) (stalled bool) {
	s := a.Stats()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.store.Announce(ctx, Worker{
		ID: a.cfg.WorkerID, Lag: s.Lag, Stalled: s.Stalled, LastCommit: s.LastCommit, Expires: expires,
		Entries: s.Entries, Commits: s.Commits,
	})
	if err != nil {
		a.cfg.Logger.Warn("worker record not written", "err", err)
	}
	return s.Stalled
}

func (a *Aggregator) checkAll(ctx context.Context, checks chan<- error) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var before error
	for {
		call, cancel := context.WithTimeout(ctx, a.cfg.CommitTimeout)
		began := time.Now()
		at, err := a.store.Check(call)
		cancel()
		if err == nil {
			a.clock.Learn(at, time.Since(began))
		}
		if ctx.Err() == nil {
			a.logCheck(before, err)
			before = err
		}
		if err != nil {
			tick.Reset(recheckEvery)
		} else {
			tick.Reset(checkEvery)
		}
		select {
		case checks <- err:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// logCheck logs the first no of several, and the first yes after it.
func (a *Aggregator) logCheck(before, err error) {
	switch {
	case before == nil && err != nil:
		a.cfg.Logger.Error("folding waits: the store is not the one that was opened, or cannot be used", "err", err)
	case before != nil && err == nil:
		a.cfg.Logger.Info("folding goes on: the store can be used again")
	}
}

// audit works out lag and readiness for those who ask from other goroutines.
func (l *loop) audit() {
	l.audited = time.Now()
	l.measure()
	reason := l.reason()
	s := &l.a.stats
	s.widened.Store(int64(l.pace.widened))
	s.waitingLetters.Store(int64(len(l.letters)))
	l.a.state.Store(&state{reason: reason})
	if stalled := reason != nil || l.draining; s.taking.Swap(!stalled) == stalled {
		l.a.turn()
	}
}

// turn has the record written anew.
func (a *Aggregator) turn() {
	select {
	case a.turned <- struct{}{}:
	default:
	}
}

func (l *loop) reason() error {
	switch {
	case l.halted != nil:
		return fmt.Errorf("folding has stopped: %w", l.halted)
	case l.checked != nil:
		return fmt.Errorf("the store is not the one that was opened, or cannot be used: %w", l.checked)
	case l.stuck:
		return errors.New("the store refuses this deployment; the log has the answer")
	case l.failures >= away:
		return fmt.Errorf("the last %d commits got nowhere", l.failures)
	case l.full() && (l.buryFails > 0 || len(l.letters) > l.a.cfg.DeadLetterRate):
		return fmt.Errorf("all that may be held waits behind %d dead letters that are not written yet", len(l.letters))
	case l.messages == nil:
		return errors.New("not subscribed to the bus")
	}
	return nil
}
