package app

import (
	"context"
	"log/slog"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// newRecounter returns a Recounter whose records have the seals of --journal-key. The key was read before, so it can be
// read.
func newRecounter(cfg Config, s store.Store) *recount.Recounter {
	var c recount.Config
	if key, err := readJournalKey(cfg); err == nil && key != nil {
		c.Sealer, _ = journal.NewSealer(key)
	}
	return recount.New(s, c)
}

// tendOpenings writes the opening balances of rules that have none. The next round of chores tries again.
func tendOpenings(ctx context.Context, cfg Config, s store.Store) {
	if err := newRecounter(cfg, s).Tend(ctx, cfg.Logger); err != nil && ctx.Err() == nil {
		cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "opening balances for recounts not written, will try again", slog.Any("err", err))
	}
}
