package store

import "errors"

// The errors of Folder.Fold decide what happens to the parts of a commit; the package comment
// of aggregator has the table. A store wraps one of them. Any other error means that the commit
// was maybe applied.
var (
	// ErrMarkerExists: at least one marker exists already. Nothing was applied.
	ErrMarkerExists = errors.New("marker exists")

	// ErrRefused: the store refuses the content for good (InvalidArgument,
	// OutOfRange). Nothing was applied.
	ErrRefused = errors.New("refused by the store")

	// ErrDeployment: permissions, credentials, or a missing database. Nothing was applied,
	// and a person has to act.
	ErrDeployment = errors.New("deployment")

	// ErrNotCounted: the store answered OK and did not add. Folding must stop.
	ErrNotCounted = errors.New("the store answers OK but does not add")

	// ErrNotApplied: the store gave the commit up before it began, for instance because the
	// context ended while the commit waited for a lock. Nothing was applied or will be. A
	// store answers this only if it is certain of both.
	ErrNotApplied = errors.New("not applied")

	// ErrOutdated: the commit was made with older rules than an index or a rule for the journal allows
	// (Commit.Rules), or before the database was restored (Commit.Restores). Nothing was applied: read the settings again.
	ErrOutdated = errors.New("made with older rules")

	// ErrContended: the commit conflicted with others that write the same entities. It was
	// maybe applied, as after any error that is not listed above. More shards would help.
	ErrContended = errors.New("contention")
)

// ErrChanged is the answer to a reset whose look-up is too old, or whose counter was swept after
// the look-up. Nothing was changed: look again.
var ErrChanged = errors.New("the counter has changed since it was looked up")

// ErrOtherDatabase is an error of Meta.Check: this is not the database that was opened. The
// reader then serves no total, not even from a cache, until a Check succeeds.
var ErrOtherDatabase = errors.New("another database")

// ErrReadOnly is an error of Meta.Check: this is the database that was opened, and it cannot be written now. The
// answer beside it is good, and reads go on.
var ErrReadOnly = errors.New("cannot be written now")
