package fakestore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// An Answer is the result of a call, and whether the call was applied.
type Answer int

// The answers. An answer that does not fit a call counts as OK.
const (
	// OK applies the call. A fold still gets ErrMarkerExists if a marker exists.
	OK Answer = iota
	// MarkerExists refuses a fold with ErrMarkerExists, whether or not a marker exists.
	MarkerExists
	// Refused, Deployment and NotApplied apply nothing and return the error of that name.
	Refused
	Deployment
	NotApplied
	// NotCounted inserts a fold's markers and drops its adds, as the older Datastore emulator does, and
	// returns ErrNotCounted.
	NotCounted
	// UnknownApplied and UnknownNotApplied return an error like a deadline of the server: the caller
	// cannot know which of the two happened.
	UnknownApplied
	UnknownNotApplied
	// ContendedApplied and ContendedNotApplied return ErrContended: again the caller cannot know.
	ContendedApplied
	ContendedNotApplied
	// SlowApplied and SlowNotApplied return when the caller's context ends.
	SlowApplied
	SlowNotApplied
	// Blank makes Applied find no markers and Shards find no records, because a look-up is only a hint.
	Blank
)

// OnFold sets a hook that is called before each fold. n counts folds from 1. The hook must not keep c.
// A nil hook answers OK.
func (s *Store) OnFold(hook func(n int, c *store.Commit) Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onFold = hook
}

// On sets a hook that is called before each call of op. n counts the calls from 1. A nil hook answers
// OK.
func (s *Store) On(op Op, hook func(n int) Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks[op] = hook
}

// Script answers calls 1, 2, 3 and so on with answers, and later ones with OK.
func Script(answers ...Answer) func(n int) Answer {
	return func(n int) Answer {
		if n > len(answers) {
			return OK
		}
		return answers[n-1]
	}
}

// FoldScript is Script for OnFold.
func FoldScript(answers ...Answer) func(n int, c *store.Commit) Answer {
	script := Script(answers...)
	return func(n int, _ *store.Commit) Answer { return script(n) }
}

// refusals are answers that the database gives to a call.
var refusals = map[Answer]error{Refused: engine.ErrRefused, Deployment: engine.ErrDeployment, NotApplied: engine.ErrNotApplied}

type answerKey struct{}

// answerOf returns the answer that a call gets.
func answerOf(ctx context.Context) Answer {
	answer, _ := ctx.Value(answerKey{}).(Answer)
	return answer
}

// call runs a call as the hook of its op demands. c is of a fold.
func call[T any](ctx context.Context, s *Store, op Op, run func(context.Context) (T, error), c ...*store.Commit) (result T, err error) {
	if err := ctx.Err(); err != nil {
		return result, fmt.Errorf("fakestore: %w", err)
	}
	s.mu.Lock()
	s.calls[op]++
	n, hook := s.calls[op], s.hooks[op]
	if onFold := s.onFold; onFold != nil && op == fold {
		hook = func(n int) Answer { return onFold(n, c[0]) }
	}
	s.mu.Unlock()
	answer := OK
	if hook != nil {
		answer = hook(n)
	}
	if op == fold {
		if err := cmp.Or(s.check(c[0]), s.claim(c[0], true)); err != nil {
			err = fmt.Errorf("%w: mistake of the caller: %w", store.ErrRefused, err)
			s.opts.Errorf("fakestore: %v", err)
			return result, err
		}
		defer func() { _ = s.claim(c[0], false) }()
	}
	if s.opts.Latency > 0 {
		select {
		case <-time.After(s.opts.Latency):
		case <-ctx.Done():
			return result, fmt.Errorf("fakestore: %w", ctx.Err())
		}
	}
	switch answer {
	case UnknownApplied, SlowApplied, ContendedApplied:
		_, _ = run(ctx) // its result does not matter: the answer is lost
	}
	switch answer {
	case UnknownApplied, UnknownNotApplied:
		err = fmt.Errorf("the answer was lost: %w", context.DeadlineExceeded)
	case ContendedApplied, ContendedNotApplied:
		err = store.ErrContended
	case SlowApplied, SlowNotApplied:
		<-ctx.Done()
		err = fmt.Errorf("no answer: %w", ctx.Err())
	default:
		return run(context.WithValue(ctx, answerKey{}, answer))
	}
	return result, fmt.Errorf("fakestore: %w", err)
}
