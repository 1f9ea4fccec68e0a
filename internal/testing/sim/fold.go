package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill/store"
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

// Fold applies a commit, and answers with a row of the table.
func (s *simStore) Fold(ctx context.Context, c *store.Commit) (folded store.CommitResult, err error) {
	commit := store.Commit{Markers: slices.Clone(c.Markers), Adds: slices.Clone(c.Adds), KnownShards: slices.Clone(c.KnownShards), Buckets: slices.Clone(c.Buckets), Archive: c.Archive, Tally: c.Tally, Growths: slices.Clone(c.Growths), Grouped: slices.Clone(c.Grouped), Rules: c.Rules, Records: slices.Clone(c.Records), Rows: slices.Clone(c.Rows)}
	st := &step{p: s.p, op: "fold", key: commitKey(&commit), ctx: ctx, commit: &commit}
	var got Row
	begun := s.wall()
	st.run = func(f callEnd) {
		var row Row
		s.noteCommit(s.p, &commit)
		folded, row, err = s.fold(s.p, &commit, f, st.came, begun)
		s.Rows[row]++
		s.trace("answer", s.p, rowNames[row], 0)
		got = row
	}
	st.asks = func() string { return commitText(&commit) }
	st.gets = func() string { return got.String() }
	s.noteSettings(s.p, &commit)
	began := s.begins()
	if !s.park(st) {
		return store.CommitResult{}, errFenced
	}
	if err == nil && commit.Tally > 0 { // a decision about a letter has none, and nobody looks at its time
		s.learns(began, folded.At)
	}
	return folded, err
}

// fold answers a commit of p, which was asked for in step called, when it was begun.
func (db *database) fold(p *proc, c *store.Commit, f callEnd, called int, begun time.Time) (store.CommitResult, Row, error) {
	row, err := db.failFold(c, f, func() error {
		if db.expired(begun) {
			return errExpired
		}
		_, err := db.apply(p, c, called)
		return err
	})
	if err == nil && db.expired(begun) {
		row, err = RowMaybeNot, errLost
	}
	if errors.Is(err, errLost) {
		p.unsure = true
	}
	if err != nil {
		return store.CommitResult{}, row, err
	}
	if db.poisoned(c) {
		return store.CommitResult{}, RowRefused, fmt.Errorf("sim: %w: content", store.ErrRefused)
	}
	folded, err := db.apply(p, c, called)
	switch {
	case err == nil || row == RowMaybeTwice:
	case errors.Is(err, store.ErrMarkerExists):
		row = RowExists
	case errors.Is(err, store.ErrRefused):
		row = RowRefused
	case errors.Is(err, store.ErrOutdated):
		row = RowOutdated
	}
	return folded, row, err
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
		return RowNotBegun, fmt.Errorf("sim: %w", store.ErrNotApplied)
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
		return RowContended, fmt.Errorf("sim: %w", store.ErrContended)
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
		return RowExistsNoneFound, fmt.Errorf("sim: %w", store.ErrMarkerExists)
	case db.refused():
		return RowDeployment, errDeployment
	case db.strikes(FoldIgnored):
		// Its parts are neither counted nor marked: the answer says OK, and lacks results.
		return RowNotAdded, fmt.Errorf("sim: %w", store.ErrNotCounted)
	}
	return RowOK, nil
}

// apply applies a commit, now or later.
func (db *database) apply(p *proc, c *store.Commit, called int) (store.CommitResult, error) {
	if db.poisoned(c) {
		return store.CommitResult{}, store.ErrRefused
	}
	folded, err := db.fake.Fold(background, c)
	if db.verbose {
		db.say(p, "   %s reaches the store: %s", commitName(c), answerText(err, nil))
	}
	if err == nil {
		db.watch.applied(p, c, called)
	}
	return folded, err
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
