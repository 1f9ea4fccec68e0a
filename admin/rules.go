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

// AddSeries makes the counters of a pattern keep a series: the name of a counter, or a prefix
// followed by *. A rule with the same pattern gets the new retention. Aggregators go by the rule
// within a minute.
//
// Errors match countmill.ErrInvalid, countmill.ErrUnavailable or countmill.ErrOutcomeUnknown. You may
// repeat AddSeries.
func (a *Admin) AddSeries(ctx context.Context, pattern string, keep store.Retention) (store.Settings, error) {
	return a.changeRules(ctx, "add a rule", store.RuleChange{Pattern: pattern, Keep: keep})
}

// RemoveSeries ends the rule with the pattern. What its counters have counted stays for as long as
// the rule promised. Errors are those of AddSeries, or match store.ErrNoRule. You may repeat
// RemoveSeries.
func (a *Admin) RemoveSeries(ctx context.Context, pattern string) (store.Settings, error) {
	return a.changeRules(ctx, "remove a rule", store.RuleChange{Pattern: pattern, Remove: true})
}

// FillSeries says that the series of a rule are complete in a period, too: an import counted all increments of it. It takes
// the place of an earlier period. Errors are those of RemoveSeries. You may repeat FillSeries.
func (a *Admin) FillSeries(ctx context.Context, pattern string, filled store.Period) (store.Settings, error) {
	return a.changeRules(ctx, "fill a rule", store.RuleChange{Pattern: pattern, Filled: filled})
}

// AddJournal makes the increments of the counters of a pattern stay as evidence. It has the promises and
// the errors of AddSeries.
func (a *Admin) AddJournal(ctx context.Context, pattern string, keep store.JournalChange) (store.Settings, error) {
	return a.changeRules(ctx, "add a rule", store.RuleChange{Pattern: pattern, Journal: &keep})
}

// RemoveJournal ends the rule with the pattern. Its entries stay for the promised time. It has
// the promises and the errors of RemoveSeries.
func (a *Admin) RemoveJournal(ctx context.Context, pattern string) (store.Settings, error) {
	return a.changeRules(ctx, "remove a rule", store.RuleChange{Pattern: pattern, Journal: new(store.JournalChange), Remove: true})
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
	kind, keep := "series", c.Keep.String()
	if c.Journal != nil {
		kind, keep = "journal", c.Journal.String()
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "rules changed", slog.String("kind", kind), slog.String("pattern", c.Pattern),
		slog.String("keep", keep), slog.Bool("removed", c.Remove), slog.Int64("settings_version", set.Version))
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	a.cfg.OnRules(ctx)
	return set, nil
}
