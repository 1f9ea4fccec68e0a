package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ErrBusy means that another backup to the target is under way. Repeat when it has ended.
var ErrBusy = errors.New("another backup is under way")

// A mark is renewed every renewEvery. The work ends if that did not succeed for giveUpAfter. After
// markLife others take the mark for that of a dead process.
const (
	renewEvery  = time.Minute
	giveUpAfter = 5 * time.Minute
	markLife    = 10 * time.Minute
)

// alone does the work while no other process writes to the target. The owner's own mark of an earlier
// process does not matter: that process is dead.
func (t target) alone(ctx context.Context, owner string, work func(ctx context.Context, now time.Time) error) error {
	mark := t.name(marks, owner)
	if err := t.put(ctx, mark, nil); err != nil {
		return err
	}
	// A mark that stays keeps others away for ten minutes, but not this owner.
	defer func() { _ = t.remove(context.WithoutCancel(ctx), mark) }()
	now, err := t.first(ctx, mark)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { cancel(t.renew(ctx, mark)) })
	defer renewing.Wait()
	defer cancel(nil)
	if err := work(ctx, now); err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			return errors.Join(cause, err)
		}
		return err
	}
	return nil
}

// first looks for marks of other processes, and returns the present time by the bucket's clock.
func (t target) first(ctx context.Context, mark string) (now time.Time, err error) {
	all, err := objects(ctx, t.bucket, t.name(marks)+"/")
	if err != nil {
		return now, err
	}
	others := make(map[string]time.Time)
	for _, o := range all {
		switch {
		case o.Name == mark:
			now = o.ModTime
		case !strings.HasPrefix(o.Name, mark): // otherwise a leftover of this owner
			others[o.Name] = o.ModTime
		}
	}
	if now.IsZero() {
		return now, fmt.Errorf("%s is not in the list of the bucket right after it was written", mark)
	}
	for name, at := range others {
		if now.Sub(at) < markLife {
			return now, fmt.Errorf("%w: %s was written at %s", ErrBusy, name, at.UTC().Format(time.RFC3339))
		}
	}
	for name := range others {
		_ = t.remove(ctx, name) // of a dead process: it may stay, too
	}
	return now, nil
}

// renew puts the mark again until ctx ends. It returns an error if others may take the mark for a dead
// process's soon.
func (t target) renew(ctx context.Context, mark string) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		began := time.Now()
		err := t.put(ctx, mark, nil)
		if age := began.Sub(last); age > giveUpAfter { // also when the process was suspended
			return errors.Join(fmt.Errorf("the mark %s was not renewed for %s", mark, age.Round(time.Second)), err)
		}
		if err == nil {
			last = began
		}
	}
}
