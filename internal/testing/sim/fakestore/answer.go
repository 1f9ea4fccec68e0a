package fakestore

import (
	"context"
	"fmt"

	"github.com/countmill/countmill/store"
)

// An Answer is the result of a call, and whether the call was applied.
type Answer int

// The answers. An answer that does not fit a call counts as OK.
const (
	// OK applies the call. A fold still gets ErrMarkerExists if a marker exists.
	OK Answer = iota
	// MarkerExists refuses a fold with ErrMarkerExists, whether or not a marker exists.
	MarkerExists
	// Refused and Deployment apply nothing and return the error of that name.
	Refused
	Deployment
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
	// NotApplied refuses a fold with ErrNotApplied: it never began.
	NotApplied
	// SlowApplied and SlowNotApplied return when the caller's context ends.
	SlowApplied
	SlowNotApplied
	// Blank makes Applied find no markers and Shards find no records, because a look-up is only a hint.
	// For other calls it is OK.
	Blank
)

// An Op names a call.
type Op string

// The calls that take hooks. OnFold is for Fold.
const (
	Applied           Op = "Applied"
	Shards            Op = "Shards"
	Grow              Op = "Grow"
	PutDeadLetters    Op = "PutDeadLetters"
	ListDeadLetters   Op = "ListDeadLetters"
	DeleteDeadLetters Op = "DeleteDeadLetters"
	GetDeadLetters    Op = "GetDeadLetters"
	DeadLetterRefs    Op = "DeadLetterRefs"
	Beat              Op = "Beat"
	Check             Op = "Check"
	// SetWindow is a change of settings.
	SetWindow Op = "SetWindow"
	// ChangeRules is a change of rules.
	ChangeRules   Op = "ChangeRules"
	Workers       Op = "Workers"
	Lookup        Op = "Lookup"
	Reset         Op = "ResetCounter"
	Sweep         Op = "SweepCounters"
	SweepSeries   Op = "SweepSeries"
	MoveSeries    Op = "MoveSeries"
	Series        Op = "Series"
	GrowCounter   Op = "GrowCounter"
	List          Op = "List"
	Ranges        Op = "Ranges"
	SwapRanges    Op = "SwapRanges"
	Ungrouped     Op = "Ungrouped"
	SetRemainders Op = "SetRemainders"
	RemaindersOf  Op = "RemaindersOf"
	DropGrouped   Op = "DropGrouped"
	DropGroups    Op = "DropGroups"
	Sums          Op = "Sums"
	Survey        Op = "Survey" // ShardsOf and ShardPage
	// Journal is a read of the journal.
	Journal       Op = "Journal"
	ReplaceRecord Op = "ReplaceRecord"
	SweepJournal  Op = "SweepJournal"

	NextValues     Op = "NextValues"
	Sequence       Op = "Sequence"
	DeleteSequence Op = "DeleteSequence"

	fold Op = "Fold"
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

// begin numbers the call and calls its hook, without the lock.
func (s *Store) begin(ctx context.Context, op Op, c *store.Commit) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return OK, fmt.Errorf("fakestore: %w", err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return OK, errClosed
	}
	s.calls[op]++
	n, hook, onFold := s.calls[op], s.hooks[op], s.onFold
	s.mu.Unlock()
	switch {
	case op == fold && onFold != nil:
		return onFold(n, c), nil
	case hook != nil:
		return hook(n), nil
	}
	return OK, nil
}

// run is begin and do, for a call that holds the lock all the time.
func (s *Store) run(ctx context.Context, op Op, locked func() error) error {
	answer, err := s.begin(ctx, op, nil)
	if err != nil {
		return err
	}
	return s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return locked()
	})
}

// do runs a call as the answer demands. run takes the lock itself.
func (s *Store) do(ctx context.Context, answer Answer, run func() error) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	switch answer {
	case Refused:
		return fmt.Errorf("fakestore: %w", store.ErrRefused)
	case Deployment:
		return fmt.Errorf("fakestore: %w: permission denied", store.ErrDeployment)
	case NotApplied:
		return fmt.Errorf("fakestore: %w: it never began", store.ErrNotApplied)
	case UnknownApplied, SlowApplied, ContendedApplied:
		_ = run() // its result does not matter: the answer is lost
	}
	switch answer {
	case UnknownApplied, UnknownNotApplied:
		return fmt.Errorf("fakestore: the answer was lost: %w", context.DeadlineExceeded)
	case ContendedApplied, ContendedNotApplied:
		return fmt.Errorf("fakestore: %w", store.ErrContended)
	case SlowApplied, SlowNotApplied:
		<-ctx.Done()
		return fmt.Errorf("fakestore: no answer: %w", ctx.Err())
	}
	return run()
}
