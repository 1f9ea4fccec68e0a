package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// setRules writes the rules of --series and --journal into the database if an aggregator was given some.
// Rules that the database has already stay as they are.
func setRules(cfg Config, b *backends) error {
	if len(cfg.Series)+len(cfg.Journal) == 0 || !cfg.Roles.Has(Aggregator) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	for kind, texts := range [][]string{store.KindSeries: cfg.Series, store.KindJournal: cfg.Journal} {
		for _, text := range texts {
			kind := store.RuleKind(kind)
			pattern, keep, err := store.ParseRule(kind, text)
			if err != nil {
				return Usagef("--%s %q: %s", kind, text, err)
			}
			if err := setRule(ctx, cfg.Logger, b.store, store.RuleChange{Kind: kind, Pattern: pattern, Keep: keep}); err != nil {
				return fmt.Errorf("--%s: %w", kind, err)
			}
		}
	}
	b.balances.tendSoon(ctx, cfg, b.store)
	return nil
}

// setRule repeats the change after an unclear answer: a rule that is in force changes nothing. Processes
// that start together do not repeat it together.
func setRule(ctx context.Context, log *slog.Logger, s store.Store, change store.RuleChange) error {
	for {
		set, err := s.ChangeRules(ctx, change)
		if err == nil {
			log.LogAttrs(ctx, slog.LevelInfo, "rule in force, as the flag says", slog.String("kind", change.Kind.String()),
				slog.String("pattern", change.Pattern), slog.String("keep", change.Keep.String()), slog.Int64("settings_version", set.Version))
			return nil
		}
		final := errors.Is(err, store.ErrDeployment) || errors.Is(err, countmill.ErrInvalid)
		if final || !clock.Sleep(ctx, time.Second/2+rand.N(time.Second)) {
			return err
		}
	}
}
