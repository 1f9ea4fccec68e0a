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

// A foldCall is a fold of an aggregator.
type foldCall struct {
	begun  time.Time // by clocks that are right
	commit store.Commit
}

// fold answers the commit of a fold.
func (db *database) fold(s *step, f *foldCall, end callEnd, do func() error) (err error) {
	apply := func() error { return db.apply(s, f, do) }
	err = db.failFold(&f.commit, end, apply)
	if err == nil && db.expired(f.begun) {
		err = errLost
	}
	if errors.Is(err, errLost) {
		s.p.unsure = true
	}
	if err == nil {
		err = apply()
	}
	return err
}

// failFold breaks a fold in one of the ways that a store can, and returns the error for the caller.
// The error is nil if no fault happens, or a fault that callers do not notice.
func (db *database) failFold(c *store.Commit, f callEnd, apply func() error) error {
	switch {
	case f != released:
		db.mayApply(apply)
		return errLost
	case db.away(StoreAway):
		db.maybe(apply)
		return errLost
	case db.strikes(FoldNotBegun):
		return fmt.Errorf("sim: %w", engine.ErrNotApplied)
	case db.strikes(FoldNotApplied):
		return errLost
	case db.strikes(FoldApplied):
		_ = apply()
		return errLost
	case db.strikes(FoldLate):
		db.later(apply)
		return errLost
	case db.strikes(FoldContended):
		db.maybe(apply)
		return fmt.Errorf("sim: %w", engine.ErrContended)
	case db.strikes(FoldResent):
		_ = apply() // and again
		return nil
	case db.strikes(FoldExists) && len(c.Markers) > 0:
		return fmt.Errorf("sim: %w", engine.ErrExists)
	case db.refused():
		return errDeployment
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
		db.applied(s.p, &f.commit, s.came)
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
