package sim

import (
	"context"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol"
)

// Chores are what processes do beside their roles, and what persons do with the whole database: sweeps, moves of series, and changes
// of the settings.
type chores struct {
	*callers
	procs *processes
	db    *database
}

// aside lets the store of a process do something, in steps as all other calls.
func (ch *chores) aside(kind string, do func(ctx context.Context, s *protocol.Store) error) bool {
	all := slices.DeleteFunc(ch.procs.everybody(), func(p *proc) bool { return p.store == nil || p.leaving })
	if len(all) == 0 {
		return false
	}
	p := pick(ch.rng, all)
	ch.ask(ch.newOp(kind, func(*op) {}), p, func(ctx context.Context) error { return do(ctx, p.store) })
	return true
}

// readSettings makes an aggregator read the settings at once. A process that changes them does the same.
func (ch *chores) readSettings(p *proc) {
	ch.ask(ch.newOp("read settings", func(*op) {}), p, func(ctx context.Context) error {
		p.agg.ReadSettings(ctx)
		return nil
	})
}

// change changes the settings: at once, as a process that is not of the schedule does, or in steps. The process that has the database
// alone does it itself.
func (ch *chores) change(kind string, do func(ctx context.Context, s *protocol.Store) error) bool {
	if ch.embedded || ch.rng.IntN(2) == 0 {
		return ch.aside(kind, do)
	}
	err := do(background, ch.db.other)
	ch.trace(kind, nil, "", 0)
	ch.say(nil, "%s at once: %v", kind, err)
	return err == nil
}

// sweep removes deleted counters, as each process does every hour.
func (ch *chores) sweep() bool {
	if ch.rng.IntN(2) == 0 && ch.db.maySweep() {
		return ch.aside("sweep", func(ctx context.Context, s *protocol.Store) error {
			if _, err := s.SweepCounters(ctx, store.SweepAfter); err != nil {
				return err
			}
			return s.SweepSeries(ctx)
		})
	}
	return ch.db.sweep()
}

// moveSeries lets a process move the series of the shards that it has found crowded, now and then.
func (ch *chores) moveSeries() {
	if len(ch.rules) > 0 && ch.limits.RowsCost && ch.contest == nil && ch.stormy && ch.rng.IntN(4) == 0 {
		ch.aside("move", func(ctx context.Context, s *protocol.Store) error {
			_, err := s.MoveSeries(ctx)
			return err
		})
	}
}

// changeWindow sets the database's window.
func (ch *chores) changeWindow(longer bool) bool {
	others := slices.DeleteFunc(slices.Clone(windows), func(d time.Duration) bool {
		return d == ch.window() || d > ch.window() != longer
	})
	if len(others) == 0 {
		return false
	}
	to := pick(ch.rng, others)
	return ch.change("window", func(ctx context.Context, s *protocol.Store) error {
		_, err := s.SetWindow(ctx, to)
		return err
	})
}

// changeIndex creates an index, or deletes it.
func (ch *chores) changeIndex() bool {
	x := pick(ch.rng, ch.indexed.indexes)
	step := store.CreateIndex
	if found := ch.db.rulesNow().Index(x.Name); found != nil {
		if !found.InForce() || ch.rng.IntN(2) == 0 {
			return false
		}
		step = store.DeleteIndex
	}
	return ch.change("index", stepIndex(step, x))
}

func stepIndex(step store.IndexStep, x store.Index) func(ctx context.Context, s *protocol.Store) error {
	return func(ctx context.Context, s *protocol.Store) error {
		_, err := s.ChangeRules(ctx, store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
		return err
	}
}

// createIndexes creates all indexes that do not exist, when nothing breaks any more: late rules over
// all that was counted.
func (ch *chores) createIndexes() {
	if ch.indexed == nil {
		return
	}
	for _, x := range ch.indexed.indexes {
		if ch.db.rulesNow().Index(x.Name) == nil {
			ch.change("index", stepIndex(store.CreateIndex, x))
		}
	}
}

// changeJournal changes whether new entries of a pattern have rows.
func (ch *chores) changeJournal() bool {
	rule := pick(ch.rng, ch.db.rulesNow().Journal)
	change := rule.Keep
	change.Paged = !change.Paged
	return ch.change("journal rule", func(ctx context.Context, s *protocol.Store) error {
		_, err := s.ChangeRules(ctx, store.RuleChange{Kind: store.KindJournal, Pattern: rule.Pattern, Keep: change})
		return err
	})
}
