package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// The states of an index.
const (
	IndexBuilding = "building" // its groups get increments, and cannot be read yet
	IndexServing  = "serving"  // its groups can be read
	IndexDeleting = "deleting" // its groups get no more increments, and are being removed
)

// An IndexState is an index and how far the work on it is.
type IndexState struct {
	store.Index
	// State is one of the constants above.
	State string
	// Ranges are the ranges of the present work, and Done the finished ones. Both are 0 before the work
	// begins.
	Ranges, Done int
	// Shards is the number of shards that the finished ranges have read, and Corrected the number
	// of groups that later readings have corrected.
	Shards, Corrected int64
}

// StateOf returns the state of an index.
func StateOf(x *store.Index) string {
	switch {
	case !x.InForce():
		return IndexDeleting
	case x.Serving.IsZero():
		return IndexBuilding
	}
	return IndexServing
}

// Indexes returns all indexes in the order of their names, and the version of the settings. The error
// matches countmill.ErrUnavailable.
func (a *Admin) Indexes(ctx context.Context) (states []IndexState, version int64, err error) {
	set, err := a.Rules(ctx)
	if err != nil || set.Rules == nil {
		return nil, set.Version, err
	}
	for i := range set.Rules.Indexes {
		state, err := a.stateOf(ctx, set.Rules.Indexes[i])
		if err != nil {
			return nil, 0, err
		}
		states = append(states, state)
	}
	return states, set.Version, nil
}

// Index returns the state of one index. The error matches store.ErrNoIndex or countmill.ErrUnavailable.
func (a *Admin) Index(ctx context.Context, name string) (IndexState, error) {
	set, err := a.Rules(ctx)
	if err != nil {
		return IndexState{}, err
	}
	x := set.Rules.Index(name)
	if x == nil {
		return IndexState{}, fmt.Errorf("%w: %q", store.ErrNoIndex, name)
	}
	return a.stateOf(ctx, *x)
}

func (a *Admin) stateOf(ctx context.Context, x store.Index) (IndexState, error) {
	state := IndexState{Index: x, State: StateOf(&x)}
	var ranges []store.IndexRange
	err := a.retry(ctx, func(ctx context.Context) (err error) {
		if ranges, err = a.store.Ranges(ctx, x.Number); err != nil {
			return undone{fmt.Errorf("%w: reading the ranges of index %q: %w", countmill.ErrUnavailable, x.Name, err)}
		}
		return nil
	})
	state.Ranges = len(ranges)
	for i := range ranges {
		p := &ranges[i]
		if p.Read.After(x.Since) {
			state.Done++
			state.Shards += p.Shards
		}
		state.Corrected += p.Corrected
	}
	return state, err
}

// CreateIndex creates an index: see store.ParseIndex for match and group. From its answer on the aggregator of
// this process adds to its groups, and all others within a minute. Its groups can be read when it
// serves.
//
// Errors match countmill.ErrInvalid, countmill.ErrUnavailable or countmill.ErrOutcomeUnknown. You may repeat
// CreateIndex. own are the prefixes of a caller limited to some: it may have store.OwnIndexes indexes.
func (a *Admin) CreateIndex(ctx context.Context, name, match, group string, own ...string) error {
	return a.changeIndex(ctx, "create an index", "index created", store.IndexChange{
		Step: store.CreateIndex, Index: store.Index{Name: name, Match: match, Group: group}, Own: own,
	})
}

// DeleteIndex begins to delete an index and all its groups. Errors are those of CreateIndex, or match
// store.ErrNoIndex. You may repeat DeleteIndex.
func (a *Admin) DeleteIndex(ctx context.Context, name string) error {
	return a.changeIndex(ctx, "delete an index", "index is being deleted", store.IndexChange{
		Step: store.DeleteIndex, Index: store.Index{Name: name},
	})
}

func (a *Admin) changeIndex(ctx context.Context, doing, done string, c store.IndexChange) error {
	var set store.Settings
	err := a.retry(ctx, func(ctx context.Context) (err error) {
		set, err = a.store.ChangeRules(ctx, store.RuleChange{Index: &c})
		if errors.Is(err, store.ErrNoIndex) || errors.Is(err, countmill.ErrInvalid) {
			return undone{err}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	x := cmp.Or(set.Rules.Index(c.Index.Name), &c.Index)
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, done, slog.String("index", x.Name), slog.String("match", x.Match),
		slog.String("group", x.Group), slog.Int64("settings_version", set.Version))
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	a.cfg.OnRules(ctx)
	return nil
}

// checkGroup refuses a group that no index has: nobody would ever remove its record.
func (a *Admin) checkGroup(ctx context.Context, counter string) error {
	if !countmill.IsGroup(counter) {
		return nil
	}
	set, err := a.Rules(ctx)
	if err != nil {
		return err
	}
	if x := set.Rules.IndexOf(counter); x == nil || !x.InForce() {
		return &countmill.FieldError{Field: "counter", Problem: "is a group of no index", Limit: "groups of indexes that are not being deleted"}
	}
	return nil
}

// errGroup refuses to take increments out of a group alone.
func errGroup(counter string) error {
	return &countmill.FieldError{
		Field: "counter", Problem: fmt.Sprintf("%q is a group, whose total is the sum of its counters", counter),
		Limit: "a counter that is no group; delete the index to remove its groups",
	}
}
