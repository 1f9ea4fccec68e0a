package engine

import (
	"errors"
	"fmt"
)

// After these errors nothing was applied, and nothing will be. An engine wraps one of them. After any error that is not
// in this list, the call was maybe applied.
var (
	// ErrExists: the row of an Insert exists. What exists is durable.
	ErrExists = errors.New("the row exists")
	// ErrMissing: the row of an Update does not exist.
	ErrMissing = errors.New("the row does not exist")
	// ErrConflict: a row that a Transact asked for has changed. Repeat the Transact.
	ErrConflict = errors.New("a row has changed meanwhile")
	// ErrOutdated: a Require does not hold, or Restores is another number.
	ErrOutdated = errors.New("a condition does not hold")
	// ErrRefused: the engine refuses the content for good.
	ErrRefused = errors.New("refused by the database")
	// ErrNotApplied: the engine gave the call up before it began, for instance because its context had ended.
	ErrNotApplied = errors.New("not applied")
	// ErrDeployment: permissions, credentials, a missing database or a full disk. A person has to act.
	ErrDeployment = errors.New("deployment")
)

// The other errors. A call with changes that ends with one of them was maybe applied.
var (
	// ErrContended: the call met others on the same rows. More rows, or fewer callers, would help.
	ErrContended = errors.New("contention")
	// ErrNotCounted: the database answered OK and did not add. Its callers must stop.
	ErrNotCounted = errors.New("the database answers OK but does not add")
	// ErrExpired: the database no longer has the moment of a View.
	ErrExpired = errors.New("the moment of the view is gone")
	// ErrOtherDatabase is an answer of Check: this is not the database that was opened.
	ErrOtherDatabase = errors.New("another database")
	// ErrReadOnly is an answer of Check: the database cannot be written now. The answer beside it is good.
	ErrReadOnly = errors.New("cannot be written now")
)

// NotApplied adds ErrNotApplied to an error that does not match it yet.
func NotApplied(err error) error {
	if errors.Is(err, ErrNotApplied) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotApplied, err)
}
