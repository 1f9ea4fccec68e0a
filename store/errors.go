package store

import (
	"errors"

	"github.com/countmill/countmill/store/engine"
)

// The errors of Folder.Fold decide what happens to the parts of a commit; the package comment
// of aggregator has the table. A store wraps one of them. Any other error means that the commit
// was maybe applied.
var (
	// ErrMarkerExists: at least one marker exists already. Nothing was applied.
	ErrMarkerExists = engine.ErrExists

	// ErrOutdated: the commit was made with older rules than an index or a rule for the journal allows
	// (Commit.Rules), or before the database was restored (Commit.Restores). Nothing was applied: read the settings again.
	ErrOutdated = engine.ErrOutdated

	// Package engine describes these. More shards help after ErrContended. Folding must stop after ErrNotCounted.
	ErrRefused    = engine.ErrRefused
	ErrDeployment = engine.ErrDeployment
	ErrNotApplied = engine.ErrNotApplied
	ErrContended  = engine.ErrContended
	ErrNotCounted = engine.ErrNotCounted
)

// ErrChanged is the answer to a reset whose look-up is too old, or whose counter was swept after
// the look-up. Nothing was changed: look again.
var ErrChanged = errors.New("the counter has changed since it was looked up")

// The errors of Meta.Check. After ErrOtherDatabase the reader serves no total, not even from a cache, until a Check succeeds. After
// ErrReadOnly reads go on.
var (
	ErrOtherDatabase = engine.ErrOtherDatabase
	ErrReadOnly      = engine.ErrReadOnly
)
