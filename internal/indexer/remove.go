package indexer

import (
	"context"
	"log/slog"
	"slices"

	"github.com/countmill/countmill/store"
)

// remove removes groups, pieces and the index, when no shard has a grouped part any more.
func (x *Indexer) remove(ctx context.Context, index *store.Index, pieces []store.Piece) error {
	dropped, err := x.dropGroups(ctx, index)
	if err != nil || dropped > 0 {
		return err
	}
	if err := x.removePieces(ctx, pieces); err != nil {
		return err
	}
	if err := x.change(ctx, store.IndexChange{Step: store.RemoveIndex, Index: store.Index{Name: index.Name, Number: index.Number}}); err != nil {
		return err
	}
	// A worker that was stopped may have made pieces again. A worker that makes them later sees that the
	// index is gone.
	if pieces, err = x.allPieces(ctx, index); err == nil {
		err = x.removePieces(ctx, pieces)
	}
	if err != nil {
		return err
	}
	x.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "index deleted", slog.String("index", index.Name))
	x.cfg.OnRules(ctx)
	return nil
}

func (x *Indexer) removePieces(ctx context.Context, pieces []store.Piece) error {
	for some := range slices.Chunk(pieces, mostSwapped) {
		if err := x.swap(ctx, some, nil); err != nil {
			return err
		}
	}
	return nil
}

// mostSwapped is the most pieces of one SwapPieces.
const mostSwapped = 100

func (x *Indexer) dropGroups(ctx context.Context, index *store.Index) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	return x.store.DropGroups(ctx, index, dropLot)
}

// dropLot is the number of groups that one call removes.
const dropLot = 100
