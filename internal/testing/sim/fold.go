package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// A Row is an answer of the store to a fold: the rows of the aggregator's table, with
// "maybe applied" taken apart by what really happened.
type Row int

// The rows.
const (
	RowOK Row = iota
	RowNotAdded
	RowExists
	RowExistsNoneFound
	RowRefused
	RowDeployment
	RowMaybeApplied
	RowNotBegun
	RowMaybeNot
	RowMaybeLater
	RowMaybeTwice
	RowContended
	RowPastDeadline
	RowOutdated

	rowCount
)

var rowNames = [rowCount]string{
	"OK", "OK, but not added", "marker exists", "marker exists, none found", "refused for its content",
	"deployment", "unknown: was applied", "not applied: it never began", "unknown: was not applied", "unknown: applied later",
	"applied, sent again below: marker exists", "contention: applied, not applied or later", "no answer before the deadline", "made by older rules",
}

func (r Row) String() string { return rowNames[r] }

// A foldCall is a fold of an aggregator.
type foldCall struct {
	begun  time.Time // by clocks that are right
	commit store.Commit
	row    Row
}

// fold answers the commit of a fold.
func (db *database) fold(s *step, f *foldCall, end callEnd, do func() error) (err error) {
	db.noteCommit(s.p, &f.commit)
	apply := func() error { return db.apply(s, f, do) }
	f.row, err = db.failFold(&f.commit, end, apply)
	if err == nil && db.expired(f.begun) {
		f.row, err = RowMaybeNot, errLost
	}
	if errors.Is(err, errLost) {
		s.p.unsure = true
	}
	if err == nil {
		err = apply()
		for _, known := range []struct {
			err error
			row Row
		}{{engine.ErrRefused, RowRefused}, {engine.ErrOutdated, RowOutdated}, {engine.ErrExists, RowExists}} {
			if errors.Is(err, known.err) && f.row != RowMaybeTwice {
				f.row = known.row
			}
		}
	}
	db.Rows[f.row]++
	db.trace("answer", s.p, rowNames[f.row], 0)
	return err
}

// failFold breaks a fold in one of the ways that a store can, and returns the error for the caller.
// The error is nil if no fault happens, or a fault that callers do not notice.
func (db *database) failFold(c *store.Commit, f callEnd, apply func() error) (Row, error) {
	switch {
	case f != released:
		db.mayApply(apply)
		return RowPastDeadline, errLost
	case db.away(StoreAway):
		return db.maybe(apply), errLost
	case db.strikes(FoldNotBegun):
		return RowNotBegun, fmt.Errorf("sim: %w", engine.ErrNotApplied)
	case db.strikes(FoldNotApplied):
		return RowMaybeNot, errLost
	case db.strikes(FoldApplied):
		if apply() != nil {
			return RowMaybeNot, errLost
		}
		return RowMaybeApplied, errLost
	case db.strikes(FoldLate):
		db.later(apply)
		return RowMaybeLater, errLost
	case db.strikes(FoldContended):
		db.maybe(apply)
		return RowContended, fmt.Errorf("sim: %w", engine.ErrContended)
	case db.strikes(FoldResent):
		if apply() == nil {
			return RowMaybeTwice, nil
		}
		return RowOK, nil
	}
	return db.refuseFold(c)
}

// mayApply is maybe for a commit. One of an embedded store is applied while its process runs, or never.
func (db *database) mayApply(apply func() error) {
	if left := len(db.delayed); db.maybe(apply) == RowMaybeLater && db.embedded {
		db.delayed = db.delayed[:left]
		_ = apply()
	}
}

// refuseFold lets the store answer without applying anything.
func (db *database) refuseFold(c *store.Commit) (Row, error) {
	switch {
	case db.strikes(FoldExists) && len(c.Markers) > 0:
		return RowExistsNoneFound, fmt.Errorf("sim: %w", engine.ErrExists)
	case db.refused():
		return RowDeployment, errDeployment
	case db.strikes(FoldIgnored):
		// Its parts are neither counted nor marked: the answer says OK, and lacks results.
		return RowNotAdded, fmt.Errorf("sim: %w", engine.ErrNotCounted)
	}
	return RowOK, nil
}

// apply applies a commit, now or later.
func (db *database) apply(s *step, f *foldCall, do func() error) error {
	switch {
	case db.expired(f.begun):
		return errExpired
	case db.poisoned(&f.commit):
		return fmt.Errorf("sim: %w: content", engine.ErrRefused)
	}
	err := do()
	if db.verbose {
		db.say(s.p, "   %s reaches the store: %s", commitName(&f.commit), answerText(err, nil))
	}
	if err == nil {
		db.noteFolded(&f.commit)
		db.watch.applied(s.p, &f.commit, s.came)
	}
	return err
}

// poisoned reports whether the store refuses the commit for its content.
func (db *database) poisoned(c *store.Commit) bool {
	return (db.cured == 0 || db.Steps < db.cured) && slices.ContainsFunc(c.Adds, func(a store.ShardDelta) bool { return a.Counter == poison })
}

func commitKey(c *store.Commit) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, m := range c.Markers {
		_, _ = h.Write(m.ID[:])
	}
	for _, a := range c.Adds {
		_, _ = h.WriteString(a.Counter)
		_, _ = h.Write([]byte{byte(a.Shard), byte(a.Delta), byte(a.Delta >> 8)})
	}
	for _, r := range c.Growths {
		_, _ = h.WriteString(r.Counter)
		_, _ = h.Write([]byte{byte(r.Shards)})
	}
	return h.Sum64()
}
