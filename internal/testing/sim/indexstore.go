package sim

import (
	"context"
	"fmt"
	"strings"

	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/store"
)

// An indexStore is the store as an Indexer sees it.
type indexStore struct{ *simStore }

var _ indexer.Store = indexStore{}

// Check reads the rules. It does not reach the other roles of its process.
func (s indexStore) Check(ctx context.Context) (checked store.Checked, err error) {
	err = s.call(ctx, "index rules", 0, IndexFails, nil, nil, func() (err error) {
		if s.swapped {
			return errSwapped
		}
		checked, err = s.fake.Check(background)
		checked.At = s.storeNow()
		return err
	})
	return checked, err
}

// ChangeRules makes a step of an index.
func (s indexStore) ChangeRules(ctx context.Context, c store.RuleChange) (set store.Settings, err error) {
	err = s.change(ctx, "index step", stringsKey([]string{c.Index.Index.Name, fmt.Sprint(c.Index.Step)}), IndexLost, IndexAnswerLost, IndexLate,
		func() string { return fmt.Sprint(c.Index.Index.Name, " ", c.Index.Step) }, func() (err error) {
			if set, err = s.fake.ChangeRules(background, c); err == nil {
				s.watch.ruled(set.Rules)
			}
			return err
		})
	return set, err
}

func pieceKey(op string, pieces ...store.Piece) uint64 {
	names := []string{op}
	for _, p := range pieces {
		names = append(names, fmt.Sprint(p.Index, p.ID, p.Round, p.Worker, p.Until.UnixMicro()))
	}
	return stringsKey(names)
}

func piecesText(pieces []store.Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		fmt.Fprintf(&b, "[%d/%d %x-%x round %d of %q, retired: %t, read %s] ", p.Index, p.ID, p.From>>48, p.To>>48, p.Round, p.Worker, p.Retired, p.Read.Format(clockFormat))
	}
	return b.String()
}

// Pieces lists the pieces of an index.
func (s indexStore) Pieces(ctx context.Context, index int64) (pieces []store.Piece, err error) {
	err = s.call(ctx, "pieces", uint64(index), IndexFails, nil, func() string { return piecesText(pieces) }, func() (err error) {
		pieces, err = s.fake.Pieces(background, index)
		return err
	})
	return pieces, err
}

// SwapPieces replaces pieces.
func (s indexStore) SwapPieces(ctx context.Context, old, next []store.Piece) error {
	return s.change(ctx, "swap", pieceKey("swap", append(old, next...)...), IndexLost, IndexAnswerLost, IndexLate,
		func() string { return piecesText(old) + "by " + piecesText(next) },
		func() error { return s.fake.SwapPieces(background, old, next) })
}

// Ungrouped reads a page of a piece.
func (s indexStore) Ungrouped(ctx context.Context, x *store.Index, p *store.Piece, from string, limit int) (page store.UngroupedPage, err error) {
	err = s.call(ctx, "ungrouped", pieceKey("ungrouped"+from, *p), IndexFails,
		func() string { return fmt.Sprintf("%s from %q", piecesText([]store.Piece{*p}), from) }, func() string { return fmt.Sprint(page.Rests) },
		func() (err error) {
			page, err = s.fake.Ungrouped(background, x, p, from, limit)
			return err
		})
	return page, err
}

// SetRests sets rests, now or later.
func (s indexStore) SetRests(ctx context.Context, p *store.Piece, rests []store.GroupRest) error {
	piece := *p
	return s.change(ctx, "set rests", pieceKey(fmt.Sprint("set", rests), piece), IndexLost, IndexAnswerLost, IndexLate,
		func() string { return piecesText([]store.Piece{piece}) + fmt.Sprint(rests) },
		func() error { return s.fake.SetRests(background, &piece, rests) })
}

// RestsOf lists the rests of a piece.
func (s indexStore) RestsOf(ctx context.Context, p *store.Piece, after string, limit int) (rests []store.GroupRest, err error) {
	err = s.call(ctx, "rests", pieceKey("rests"+after, *p), IndexFails,
		func() string { return piecesText([]store.Piece{*p}) }, func() string { return fmt.Sprint(rests) }, func() (err error) {
			rests, err = s.fake.RestsOf(background, p, after, limit)
			return err
		})
	return rests, err
}

// DropGrouped removes grouped parts.
func (s indexStore) DropGrouped(ctx context.Context, x *store.Index, p *store.Piece, from string, limit int) (next string, err error) {
	err = s.change(ctx, "drop grouped", pieceKey("drop"+from, *p), IndexLost, IndexAnswerLost, IndexLate, nil, func() error {
		found, err := s.fake.DropGrouped(background, x, p, from, limit)
		if err == nil {
			next = found
		}
		return err
	})
	return next, err
}

// DropGroups removes groups, and with them their series.
func (s indexStore) DropGroups(ctx context.Context, x *store.Index, limit int) (dropped int, err error) {
	err = s.change(ctx, "drop groups", uint64(x.Number), IndexLost, IndexAnswerLost, IndexLate, nil, func() (err error) {
		for group := range s.fake.Totals() {
			if x.HasGroup(group) {
				s.swept[group] = s.Steps
			}
		}
		dropped, err = s.fake.DropGroups(background, x, limit)
		return err
	})
	return dropped, err
}
