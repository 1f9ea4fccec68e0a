package sim

import (
	"fmt"
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
)

// foldOf returns the commit of an aggregator's fold that a call is; nil for other calls.
func foldOf(c *memory.Call) *store.Commit {
	commit, _ := c.Ctx.Value(foldKey{}).(*store.Commit)
	if c.Op != memory.Commit {
		return nil
	}
	return commit
}

// failFold breaks a fold in one of the ways that no other change has, and returns the error for the caller.
// The error is nil if no fault happens, or a fault that callers do not notice.
func (db *database) failFold(c *store.Commit, apply func() error) error {
	switch {
	case db.strikes(FoldNotBegun):
		return fmt.Errorf("sim: %w", engine.ErrNotApplied)
	case db.strikes(FoldContended):
		db.maybe(apply)
		return fmt.Errorf("sim: %w", engine.ErrContended)
	case db.strikes(FoldResent):
		_ = apply() // and again
	case db.strikes(FoldExists) && len(c.Markers) > 0:
		return fmt.Errorf("sim: %w", engine.ErrExists)
	case db.strikes(FoldIgnored):
		// Its parts are neither counted nor marked: the answer says OK, and lacks results.
		return fmt.Errorf("sim: %w", engine.ErrNotCounted)
	}
	return nil
}

// mayApply is maybe for a commit. One of an embedded store is applied while its process runs, or never.
func (db *database) mayApply(apply func() error) {
	left := len(db.delayed)
	if db.maybe(apply); db.embedded && len(db.delayed) > left {
		db.delayed = db.delayed[:left]
		_ = apply()
	}
}

// poisoned reports whether the store refuses the commit for its content.
func (db *database) poisoned(c *store.Commit) bool {
	return (db.cured == 0 || db.Steps < db.cured) && slices.ContainsFunc(c.Adds, func(a store.ShardDelta) bool { return a.Counter == poison })
}
