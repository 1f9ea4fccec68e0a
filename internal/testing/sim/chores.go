package sim

import (
	"context"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol"
)

// aside lets the store of a process do something beside its roles, in steps as all other calls.
func (w *World) aside(kind string, do func(ctx context.Context, s *protocol.Store) error) bool {
	all := slices.DeleteFunc(w.procs.everybody(), func(p *proc) bool { return p.store == nil || p.leaving })
	if len(all) == 0 {
		return false
	}
	p := pick(w.rng, all)
	w.callers.ask(w.callers.newOp(kind, func(*op) {}), p, func(ctx context.Context) error { return do(ctx, p.store) })
	return true
}

// readSettings makes an aggregator read the settings at once. A process that changes them does the same.
func (w *World) readSettings(p *proc) {
	w.callers.ask(w.callers.newOp("read settings", func(*op) {}), p, func(ctx context.Context) error {
		p.agg.ReadSettings(ctx)
		return nil
	})
}

// change changes the settings: at once, as a process that is not of the schedule does, or in steps. The process that has the database
// alone does it itself.
func (w *World) change(kind string, do func(ctx context.Context, s *protocol.Store) error) bool {
	if w.embedded || w.rng.IntN(2) == 0 {
		return w.aside(kind, do)
	}
	err := do(background, w.db.other)
	w.say(nil, "%s at once: %v", kind, err)
	return err == nil
}

// sweep removes deleted counters, as each process does every hour.
func (w *World) sweep() bool {
	if w.rng.IntN(2) == 0 && w.db.maySweep() {
		return w.aside("sweep", func(ctx context.Context, s *protocol.Store) error {
			if _, err := s.SweepCounters(ctx, store.SweepAfter); err != nil {
				return err
			}
			return s.SweepSeries(ctx)
		})
	}
	return w.db.sweep()
}

// moveSeries lets a process move the series of the shards that it has found crowded, now and then.
func (w *World) moveSeries() {
	if len(w.rules) > 0 && w.limits.RowsCost && w.contest == nil && w.stormy && w.rng.IntN(4) == 0 {
		w.aside("move", func(ctx context.Context, s *protocol.Store) error {
			_, err := s.MoveSeries(ctx)
			return err
		})
	}
}

// changeWindow sets the database's window.
func (w *World) changeWindow(longer bool) bool {
	others := slices.DeleteFunc(slices.Clone(windows), func(d time.Duration) bool {
		return d == w.window() || d > w.window() != longer
	})
	if len(others) == 0 {
		return false
	}
	to := pick(w.rng, others)
	return w.change("window", func(ctx context.Context, s *protocol.Store) error {
		_, err := s.SetWindow(ctx, to)
		return err
	})
}

// changeIndex creates an index, or deletes it.
func (w *World) changeIndex() bool {
	x := pick(w.rng, w.indexed.indexes)
	step, lives := store.CreateIndex, w.procs.lives(reading)
	if found := w.db.rulesNow().Index(x.Name); found != nil {
		if !found.InForce() || w.rng.IntN(2) == 0 {
			return false
		}
		step = store.DeleteIndex
	}
	if len(lives) == 0 || w.rng.IntN(2) == 0 {
		return w.change("index", stepIndex(step, x))
	}
	p := pick(w.rng, lives)
	w.callers.ask(w.callers.newOp("index", func(*op) {}), p, func(ctx context.Context) error {
		if step == store.DeleteIndex {
			return p.adm.DeleteIndex(ctx, x.Name)
		}
		return p.adm.CreateIndex(ctx, x.Name, x.Match, x.Group)
	})
	return true
}

func stepIndex(step store.IndexStep, x store.Index) func(ctx context.Context, s *protocol.Store) error {
	return func(ctx context.Context, s *protocol.Store) error {
		_, err := s.ChangeRules(ctx, store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
		return err
	}
}

// createIndexes creates all indexes that do not exist, when nothing breaks any more: late rules over
// all that was counted.
func (w *World) createIndexes() {
	if w.indexed == nil {
		return
	}
	for _, x := range w.indexed.indexes {
		if w.db.rulesNow().Index(x.Name) == nil {
			w.change("index", stepIndex(store.CreateIndex, x))
		}
	}
}

// changeJournal changes whether new entries of a pattern have rows.
func (w *World) changeJournal() bool {
	rule := pick(w.rng, w.db.rulesNow().Journal)
	change := rule.Keep
	change.Paged = !change.Paged
	return w.change("journal rule", func(ctx context.Context, s *protocol.Store) error {
		_, err := s.ChangeRules(ctx, store.RuleChange{Kind: store.KindJournal, Pattern: rule.Pattern, Keep: change})
		return err
	})
}
