package indexer

import (
	"context"
	"log/slog"
	"slices"

	"github.com/countmill/countmill/store"
)

// remove removes groups, ranges and the index, when no shard has a grouped part any more. Range 1 goes in
// the same transaction as the index: while it exists, nobody makes the first ranges again, and after it
// nobody can.
func (x *Indexer) remove(ctx context.Context, index *store.Index, ranges []store.IndexRange) error {
	dropped, err := x.dropGroups(ctx, index)
	if err != nil || dropped > 0 {
		return err
	}
	for some := range slices.Chunk(ranges[1:], store.MaxSwapped) {
		if err := x.swap(ctx, some, nil); err != nil {
			return err
		}
	}
	if err := x.change(ctx, store.IndexChange{Step: store.RemoveIndex, Index: store.Index{Name: index.Name, Number: index.Number}}); err != nil {
		return err
	}
	x.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "index deleted", slog.String("index", index.Name))
	x.cfg.OnRules(ctx)
	return nil
}

func (x *Indexer) dropGroups(ctx context.Context, index *store.Index) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	return x.store.DropGroups(ctx, index, dropLot)
}

// dropLot is the number of groups that one call removes.
const dropLot = 100
