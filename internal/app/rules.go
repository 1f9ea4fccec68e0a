package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// ParseSeries reads PATTERN=KEEP, the form of --series and of "countmill rule add series".
func ParseSeries(text string) (pattern string, keep store.Retention, err error) {
	at := strings.LastIndex(text, "=")
	if at < 0 {
		return "", keep, &countmill.FieldError{Field: "series", Problem: "has no =", Limit: "PATTERN=KEEP, such as page:*=1m:6h,15m:400d"}
	}
	pattern = text[:at]
	if err := store.CheckPattern(pattern); err != nil {
		return "", keep, err
	}
	keep, err = store.ParseRetention(text[at+1:])
	return pattern, keep, err
}

// setRules writes the rules of --series and --journal into the database if an aggregator was given some.
// Rules that the database has already stay as they are.
func setRules(cfg Config, b *backends) error {
	if len(cfg.Series)+len(cfg.Journal) == 0 || !cfg.Roles.Has(Aggregator) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	for _, text := range cfg.Series {
		pattern, keep, err := ParseSeries(text)
		if err != nil {
			return Usagef("--series %q: %s", text, err)
		}
		if err := setRule(ctx, cfg.Logger, b.store, store.RuleChange{Pattern: pattern, Keep: keep}); err != nil {
			return fmt.Errorf("--series: %w", err)
		}
	}
	if err := setJournalRules(ctx, cfg, b.store); err != nil {
		return err
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
			kind, keep := "series", change.Keep.String()
			if change.Journal != nil {
				kind, keep = "journal", change.Journal.String()
			}
			log.LogAttrs(ctx, slog.LevelInfo, "rule in force, as the flag says", slog.String("kind", kind),
				slog.String("pattern", change.Pattern), slog.String("keep", keep), slog.Int64("settings_version", set.Version))
			return nil
		}
		final := errors.Is(err, store.ErrDeployment) || errors.Is(err, countmill.ErrInvalid)
		if final || !sleep(ctx, time.Second/2+rand.N(time.Second)) {
			return err
		}
	}
}
