package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
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

	rowCount
)

var rowNames = [rowCount]string{
	"OK", "OK, but not added", "marker exists", "marker exists, none found", "refused for its content",
	"deployment", "unknown: was applied", "not applied: it never began", "unknown: was not applied", "unknown: applied later",
	"applied, sent again below: marker exists", "contention: applied, not applied or later", "no answer before the deadline",
}

func (r Row) String() string { return rowNames[r] }

// Fold applies a commit, and answers with a row of the table.
func (s *simStore) Fold(ctx context.Context, c *store.Commit) (folded store.CommitResult, err error) {
	commit := store.Commit{Markers: slices.Clone(c.Markers), Adds: slices.Clone(c.Adds), KnownShards: slices.Clone(c.KnownShards), Tally: c.Tally, Growths: slices.Clone(c.Growths)}
	st := &step{p: s.p, op: "fold", key: commitKey(&commit), ctx: ctx}
	var got Row
	st.run = func(f fate) {
		var row Row
		s.p.commits(&commit)
		folded, row, err = s.w.fold(s.p, &commit, f, st.came)
		s.w.Rows[row]++
		s.w.trace("answer", s.p, rowNames[row], 0)
		got = row
	}
	st.asks = func() string { return commitText(&commit) }
	st.gets = func() string { return got.String() }
	s.p.opening(st, &commit)
	s.w.noteSettings(s.p, &commit)
	began := s.begins()
	if !s.w.park(st) {
		return store.CommitResult{}, errFenced
	}
	if err == nil && commit.Tally > 0 { // a decision about a letter has none, and nobody looks at its time
		s.learns(began, folded.At)
	}
	return folded, err
}

// mark notes the parts that a marker is of.
func (w *World) mark(m *store.Marker) {
	w.marked[m.ID] = true
	if !m.Whole {
		return
	}
	rests := w.rests[wire.Use{ID: m.ID, Fingerprint: m.Fingerprint}]
	if len(rests) == 0 {
		w.violate("the marker %s says that a request is whole, and it has one part", m.ID)
	}
	w.Whole++
	for _, id := range rests {
		if w.marked[id] {
			w.violate("the marker %s says that a request is whole, and part %s has a marker of its own", m.ID, id)
		}
		w.marked[id] = true
	}
}

func (w *World) fold(p *proc, c *store.Commit, f fate, came int) (folded store.CommitResult, row Row, err error) {
	apply := func() error {
		if w.poisoned(c) {
			return store.ErrRefused
		}
		folded, err = w.fake.Fold(background, c)
		if w.verbose {
			w.say(p, "   %s reaches the store: %s", commitName(c), answerText(err, nil))
		}
		if err == nil {
			w.checkForbidden(p, c, came)
			for _, m := range c.Markers {
				w.mark(&m)
			}
			for _, a := range c.Adds {
				w.folded[a.Counter] += a.Delta
			}
		}
		return err
	}
	unknown := func(row Row) (store.CommitResult, Row, error) {
		p.unsure = true
		return store.CommitResult{}, row, errLost
	}
	switch {
	case f != released:
		w.maybe(apply)
		return unknown(RowPastDeadline)
	case w.away(StoreAway):
		return unknown(w.maybe(apply))
	case w.strikes(FoldNotBegun):
		return store.CommitResult{}, RowNotBegun, fmt.Errorf("sim: %w", store.ErrNotApplied)
	case w.strikes(FoldNotApplied):
		return unknown(RowMaybeNot)
	case w.strikes(FoldApplied):
		if apply() != nil {
			return unknown(RowMaybeNot)
		}
		return unknown(RowMaybeApplied)
	case w.strikes(FoldLate):
		w.later(apply)
		return unknown(RowMaybeLater)
	case w.strikes(FoldContended):
		w.maybe(apply)
		return store.CommitResult{}, RowContended, fmt.Errorf("sim: %w", store.ErrContended)
	case w.strikes(FoldResent):
		if apply() == nil {
			row = RowMaybeTwice
		}
	case w.strikes(FoldExists) && len(c.Markers) > 0:
		return store.CommitResult{}, RowExistsNoneFound, fmt.Errorf("sim: %w", store.ErrMarkerExists)
	case w.refused():
		return store.CommitResult{}, RowDeployment, errDeployment
	case w.strikes(FoldIgnored):
		// Its parts are neither counted nor marked: the answer says OK, and lacks results.
		return store.CommitResult{}, RowNotAdded, fmt.Errorf("sim: %w", store.ErrNotCounted)
	}
	if w.poisoned(c) {
		return store.CommitResult{}, RowRefused, fmt.Errorf("sim: %w: content", store.ErrRefused)
	}
	_ = apply()
	switch {
	case err == nil || row == RowMaybeTwice:
	case errors.Is(err, store.ErrMarkerExists):
		row = RowExists
	case errors.Is(err, store.ErrRefused):
		row = RowRefused
	}
	return folded, row, err
}

// poisoned reports whether the store refuses the commit for its content.
func (w *World) poisoned(c *store.Commit) bool {
	return (w.cured == 0 || w.Steps < w.cured) && slices.ContainsFunc(c.Adds, func(a store.ShardDelta) bool { return a.Counter == poison })
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
