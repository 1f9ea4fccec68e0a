package fakestore

import (
	"context"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// An Op names a call.
type Op string

// The calls that take hooks. OnFold is for Fold. Survey is ShardsOf and ShardPage, and Journal is a read of the journal.
const (
	Applied           Op = "Applied"
	Shards            Op = "Shards"
	Grow              Op = "Grow"
	PutDeadLetters    Op = "PutDeadLetters"
	ListDeadLetters   Op = "ListDeadLetters"
	DeleteDeadLetters Op = "DeleteDeadLetters"
	Beat              Op = "Beat"
	Workers           Op = "Workers"
	Check             Op = "Check"
	SetWindow         Op = "SetWindow"
	ChangeRules       Op = "ChangeRules"
	Lookup            Op = "Lookup"
	List              Op = "List"
	Series            Op = "Series"
	Survey            Op = "Survey"
	Sums              Op = "Sums"
	Reset             Op = "Reset"
	Ranges            Op = "Ranges"
	SwapRanges        Op = "SwapRanges"
	Ungrouped         Op = "Ungrouped"
	SetRemainders     Op = "SetRemainders"
	RemaindersOf      Op = "RemaindersOf"
	DropGrouped       Op = "DropGrouped"
	DropGroups        Op = "DropGroups"
	Journal           Op = "Journal"
	ReplaceRecord     Op = "ReplaceRecord"
	NextValues        Op = "NextValues"
	DeleteSequence    Op = "DeleteSequence"

	fold Op = "Fold"
)

// does is call for a call that returns an error alone.
func does(ctx context.Context, s *Store, op Op, run func(context.Context) error) error {
	_, err := call(ctx, s, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, run(ctx) })
	return err
}

func (s *Store) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	return call(ctx, s, Applied, func(ctx context.Context) ([]store.Marker, error) {
		s.count(func(n *Counts) { n.MarkersRead += len(ids) })
		if answerOf(ctx) == Blank {
			return nil, nil
		}
		return s.Store.Applied(ctx, ids)
	})
}

func (s *Store) Shards(ctx context.Context, counters []string) ([]int, error) {
	return call(ctx, s, Shards, func(ctx context.Context) ([]int, error) {
		s.count(func(n *Counts) { n.RecordsRead += len(counters) })
		if answerOf(ctx) == Blank {
			return make([]int, len(counters)), nil
		}
		return s.Store.Shards(ctx, counters)
	})
}

func (s *Store) Grow(ctx context.Context, growths []store.Growth) error {
	return does(ctx, s, Grow, func(ctx context.Context) error {
		s.count(func(n *Counts) { n.Raised += len(growths) })
		return s.Store.Grow(ctx, growths)
	})
}

func (s *Store) PutDeadLetters(ctx context.Context, letters []store.DeadLetter) error {
	return does(ctx, s, PutDeadLetters, func(ctx context.Context) error { return s.Store.PutDeadLetters(ctx, letters) })
}

func (s *Store) DeleteDeadLetters(ctx context.Context, keys []string) error {
	return does(ctx, s, DeleteDeadLetters, func(ctx context.Context) error { return s.Store.DeleteDeadLetters(ctx, keys) })
}

func (s *Store) ListDeadLetters(ctx context.Context, after string, limit int) ([]store.DeadLetter, error) {
	return call(ctx, s, ListDeadLetters, func(ctx context.Context) ([]store.DeadLetter, error) {
		return s.Store.ListDeadLetters(ctx, after, limit)
	})
}

func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	return does(ctx, s, Beat, func(ctx context.Context) error { return s.Store.Beat(ctx, w) })
}

func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	return call(ctx, s, Workers, func(ctx context.Context) ([]store.Worker, error) { return s.Store.Workers(ctx) })
}

func (s *Store) Check(ctx context.Context) (store.Checked, error) {
	return call(ctx, s, Check, func(ctx context.Context) (store.Checked, error) { return s.Store.Check(ctx) })
}

func (s *Store) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	return call(ctx, s, SetWindow, func(ctx context.Context) (store.Settings, error) { return s.Store.SetWindow(ctx, window) })
}

func (s *Store) ChangeRules(ctx context.Context, change store.RuleChange) (store.Settings, error) {
	return call(ctx, s, ChangeRules, func(ctx context.Context) (store.Settings, error) { return s.Store.ChangeRules(ctx, change) })
}

func (s *Store) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	return call(ctx, s, Survey, func(ctx context.Context) (store.ShardPage, error) { return s.Store.ShardsOf(ctx, counter) })
}

func (s *Store) ShardPage(ctx context.Context, prefix, from string, limit int) (store.ShardPage, error) {
	return call(ctx, s, Survey, func(ctx context.Context) (store.ShardPage, error) { return s.Store.ShardPage(ctx, prefix, from, limit) })
}

func (s *Store) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	return call(ctx, s, Sums, func(ctx context.Context) (store.Sums, error) { return s.Store.Sums(ctx, q, visit) })
}

func (s *Store) ResetCounter(ctx context.Context, r store.ResetRequest) (store.ResetResult, error) {
	return call(ctx, s, Reset, func(ctx context.Context) (store.ResetResult, error) { return s.Store.ResetCounter(ctx, r) })
}

func (s *Store) Ranges(ctx context.Context, index int64) ([]store.IndexRange, error) {
	return call(ctx, s, Ranges, func(ctx context.Context) ([]store.IndexRange, error) { return s.Store.Ranges(ctx, index) })
}

func (s *Store) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	return does(ctx, s, SwapRanges, func(ctx context.Context) error { return s.Store.SwapRanges(ctx, old, next) })
}

func (s *Store) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error) {
	return call(ctx, s, Ungrouped, func(ctx context.Context) (store.UngroupedPage, error) {
		return s.Store.Ungrouped(ctx, x, p, from, limit)
	})
}

func (s *Store) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	return does(ctx, s, SetRemainders, func(ctx context.Context) error { return s.Store.SetRemainders(ctx, p, remainders) })
}

func (s *Store) RemaindersOf(ctx context.Context, p *store.IndexRange, after string, limit int) ([]store.GroupRemainder, error) {
	return call(ctx, s, RemaindersOf, func(ctx context.Context) ([]store.GroupRemainder, error) {
		return s.Store.RemaindersOf(ctx, p, after, limit)
	})
}

func (s *Store) DropGrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (string, error) {
	return call(ctx, s, DropGrouped, func(ctx context.Context) (string, error) { return s.Store.DropGrouped(ctx, x, p, from, limit) })
}

func (s *Store) DropGroups(ctx context.Context, x *store.Index, limit int) (int, error) {
	return call(ctx, s, DropGroups, func(ctx context.Context) (int, error) { return s.Store.DropGroups(ctx, x, limit) })
}

func (s *Store) JournalRecords(ctx context.Context, q store.JournalQuery) (store.JournalPage, error) {
	return call(ctx, s, Journal, func(ctx context.Context) (store.JournalPage, error) { return s.Store.JournalRecords(ctx, q) })
}

func (s *Store) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (store.JournalPage, error) {
	return call(ctx, s, Journal, func(ctx context.Context) (store.JournalPage, error) { return s.Store.JournalRows(ctx, counter, q) })
}

func (s *Store) ReplaceRecord(ctx context.Context, old, next *store.JournalRecord, rows []store.JournalRow) error {
	return does(ctx, s, ReplaceRecord, func(ctx context.Context) error { return s.Store.ReplaceRecord(ctx, old, next, rows) })
}

func (s *Store) NextValues(ctx context.Context, sequence string, takes []store.Take) ([]store.Given, error) {
	return call(ctx, s, NextValues, func(ctx context.Context) ([]store.Given, error) { return s.Store.NextValues(ctx, sequence, takes) })
}

func (s *Store) DeleteSequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	return call(ctx, s, DeleteSequence, func(ctx context.Context) (store.SequenceState, error) { return s.Store.DeleteSequence(ctx, sequence) })
}

// A view has the hooks of a view's calls.
type view struct {
	store.JournalView
	store *Store
}

func (s *Store) View() store.View { return s.JournalView() }

func (s *Store) JournalView() store.JournalView { return &view{s.Store.JournalView(), s} }

func (v *view) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	return call(ctx, v.store, Lookup, func(ctx context.Context) ([]store.Value, error) {
		v.store.count(func(n *Counts) { n.KeysRead += len(keys) })
		return v.JournalView.Lookup(ctx, keys)
	})
}

func (v *view) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	return call(ctx, v.store, List, func(ctx context.Context) ([]store.Record, error) {
		return v.JournalView.List(ctx, prefix, after, limit)
	})
}

func (v *view) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	return call(ctx, v.store, Series, func(ctx context.Context) ([][]store.Bucket, error) { return v.JournalView.Series(ctx, of, from, to) })
}

func (v *view) JournalRecords(ctx context.Context, q store.JournalQuery) (store.JournalPage, error) {
	return call(ctx, v.store, Journal, func(ctx context.Context) (store.JournalPage, error) { return v.JournalView.JournalRecords(ctx, q) })
}

func (v *view) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (store.JournalPage, error) {
	return call(ctx, v.store, Journal, func(ctx context.Context) (store.JournalPage, error) {
		return v.JournalView.JournalRows(ctx, counter, q)
	})
}
