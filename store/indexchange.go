package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// An IndexStep is a change of an index.
type IndexStep int

// The steps of an index, in their order.
const (
	CreateIndex IndexStep = 1 + iota
	ServeIndex            // it is built, or was checked again
	DeleteIndex           // folds stop going by it, and its groups are removed
	RemoveIndex           // nothing of it is left but range 1, which this step removes in its transaction
)

// An IndexChange is one step of an index.
type IndexChange struct {
	Step IndexStep
	// Index has the Name; for CreateIndex also Match and Group; for ServeIndex and RemoveIndex also Number,
	// because another index may have the name by now; for ServeIndex also Checked.
	Index Index
	// Own is for CreateIndex: at most OwnIndexes indexes may be of counters that begin with one of these. Nil: no such limit.
	Own []string
}

// changeIndexes is ChangeRules for an index.
func (s Settings) changeIndexes(c *IndexChange, now time.Time, settle time.Duration) (Settings, error) {
	indexes := slices.Clone(s.Rules.indexes())
	at := slices.IndexFunc(indexes, func(x Index) bool { return x.Name == c.Index.Name })
	next := Index{}
	if at >= 0 {
		next = indexes[at]
	}
	switch {
	case c.Step == CreateIndex && at >= 0:
		if !next.InForce() {
			return s, &countmill.FieldError{Field: "name", Problem: "is of an index that is being deleted", Limit: "wait until it is gone, or take another name"}
		}
		if next.Match != c.Index.Match || next.Group != c.Index.Group {
			return s, &countmill.FieldError{Field: "name", Problem: "is taken by another index", Limit: "delete it first, and wait until it is gone"}
		}
		return s, nil
	case c.Step == CreateIndex:
		if err := c.checkOwn(indexes); err != nil {
			return s, err
		}
		return s.createIndex(indexes, c.Index, now, settle)
	case c.Step == RemoveIndex && (at < 0 || next.Number != c.Index.Number):
		return s, nil // it is gone
	case at < 0, c.Step == ServeIndex && next.Number != c.Index.Number:
		return s, fmt.Errorf("%w: %q", ErrNoIndex, c.Index.Name)
	case c.Step == ServeIndex && (!next.InForce() || !c.Index.Checked.After(next.Checked)):
		return s, nil
	case c.Step == ServeIndex:
		if next.Checked = c.Index.Checked; next.Serving.IsZero() {
			next.Serving = now
		}
	case c.Step == DeleteIndex && !next.InForce():
		return s, nil
	case c.Step == DeleteIndex:
		next.Ended, next.Version, next.Since = now, s.Version+1, now.Add(settle)
	case c.Step == RemoveIndex && next.InForce():
		return s, fmt.Errorf("%w: %q is not being deleted", ErrNoIndex, c.Index.Name)
	default:
		return s.withIndexes(slices.Delete(indexes, at, at+1)), nil
	}
	indexes[at] = next
	return s.withIndexes(indexes), nil
}

// checkOwn refuses an index that is more than the share of its creator.
func (c *IndexChange) checkOwn(indexes []Index) error {
	n := 0
	for i := range indexes {
		if slices.ContainsFunc(c.Own, func(own string) bool { return strings.HasPrefix(indexes[i].Prefix(), own) }) {
			n++
		}
	}
	if n < OwnIndexes {
		return nil
	}
	return &countmill.FieldError{
		Field: "name", Problem: "is one index too many for the counters of this caller", Limit: fmt.Sprintf("%d indexes of them, those being deleted included: delete one, or ask a caller without prefixes", OwnIndexes),
	}
}

func (s Settings) createIndex(indexes []Index, wanted Index, now time.Time, settle time.Duration) (Settings, error) {
	x, err := ParseIndex(wanted.Name, wanted.Match, wanted.Group)
	if err != nil {
		return s, err
	}
	if len(indexes) == MaxIndexes {
		return s, &countmill.FieldError{Field: "name", Problem: "is one index too many", Limit: fmt.Sprintf("%d indexes, those being deleted included", MaxIndexes)}
	}
	for i := range indexes {
		// The groups of two indexes would be one counter, and the deletion of one index would take it.
		if a, b := x.GroupPrefix(), indexes[i].GroupPrefix(); strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
			return s, &countmill.FieldError{Field: "group", Problem: "can be a group of another index", Limit: "groups of two indexes begin with different text: countmill index list"}
		}
	}
	x.Number, x.Version, x.Since = s.Version+1, s.Version+1, now.Add(settle)
	indexes = append(indexes, x)
	for i := range indexes {
		n := 0
		for j := range indexes {
			if strings.HasPrefix(indexes[i].Prefix(), indexes[j].Prefix()) {
				n++
			}
		}
		if n > MaxGroups { // without their texts, which the caller need not know
			return s, &countmill.FieldError{Field: "match", Problem: "begins as too many other indexes do", Limit: fmt.Sprintf("%d indexes for counters that begin with the same text", MaxGroups)}
		}
	}
	slices.SortFunc(indexes, func(a, b Index) int { return cmp.Compare(a.Name, b.Name) })
	return s.withIndexes(indexes), nil
}

func (s Settings) withIndexes(indexes []Index) Settings {
	return s.with(func(next *Rules) { next.Indexes = indexes })
}
