package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// Rules returns the settings of the database, with the rules in force and those whose series stay.
// The error matches countmill.ErrUnavailable.
func (a *Admin) Rules(ctx context.Context) (store.Settings, error) {
	var checked store.Checked
	err := a.retry(ctx, func(ctx context.Context) (err error) {
		if checked, err = a.store.Check(ctx); err != nil {
			return undone{fmt.Errorf("%w: reading the rules: %w", countmill.ErrUnavailable, err)}
		}
		return nil
	})
	return checked.Settings, err
}

// AddRule makes the counters of a pattern keep a series or a journal. The pattern is the name of a counter,
// or a prefix followed by *. A rule with the same pattern gets the new retention. Aggregators go by the
// rule within a minute.
//
// Errors match countmill.ErrInvalid, countmill.ErrUnavailable or countmill.ErrOutcomeUnknown. You may
// repeat AddRule.
func (a *Admin) AddRule(ctx context.Context, kind store.RuleKind, pattern string, keep store.Retention) (store.Settings, error) {
	return a.changeRules(ctx, "add a rule", store.RuleChange{Kind: kind, Pattern: pattern, Keep: keep})
}

// RemoveRule ends the rule with the pattern. What its counters have counted stays for as long as
// the rule promised. Errors are those of AddRule, or match store.ErrNoRule. You may repeat
// RemoveRule.
func (a *Admin) RemoveRule(ctx context.Context, kind store.RuleKind, pattern string) (store.Settings, error) {
	return a.changeRules(ctx, "remove a rule", store.RuleChange{Kind: kind, Pattern: pattern, Remove: true})
}

// FillSeries says that the series of a rule are complete in a period, too: an import counted all increments of it. It takes
// the place of an earlier period. Errors are those of RemoveRule. You may repeat FillSeries.
func (a *Admin) FillSeries(ctx context.Context, pattern string, filled store.Period) (store.Settings, error) {
	return a.changeRules(ctx, "fill a rule", store.RuleChange{Pattern: pattern, Filled: filled})
}

func (a *Admin) changeRules(ctx context.Context, doing string, c store.RuleChange) (set store.Settings, err error) {
	err = a.retry(ctx, func(ctx context.Context) (err error) {
		set, err = a.store.ChangeRules(ctx, c)
		if errors.Is(err, store.ErrNoRule) || errors.Is(err, countmill.ErrInvalid) {
			return undone{err}
		}
		return err
	})
	if err != nil {
		return store.Settings{}, fmt.Errorf("%s: %w", doing, err)
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "rules changed", slog.String("kind", c.Kind.String()), slog.String("pattern", c.Pattern),
		slog.String("keep", c.Keep.String()), slog.Bool("removed", c.Remove), slog.Int64("settings_version", set.Version))
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	a.cfg.OnRules(ctx)
	return set, nil
}
