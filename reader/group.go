package reader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// A NotServingError names a group that has no total now: its index is being built, or deleted.
type NotServingError struct {
	Group, Index string
	Deleting     bool
}

func (e *NotServingError) Error() string {
	state := "is being built"
	if e.Deleting {
		state = "is being deleted"
	}
	return fmt.Sprintf("group %q has no total yet: index %s %s", e.Group, e.Index, state)
}

// checkGroups returns a *NotServingError for the first group whose index does not serve. It asks the
// store again before that: the index may have begun to.
func (r *Reader) checkGroups(ctx context.Context, counters []string) error {
	if !slices.ContainsFunc(counters, countmill.IsGroup) {
		return nil
	}
	if err := r.checkStore(ctx); err != nil {
		return err
	}
	if notServing(r.settings.Load().Rules, counters) == nil {
		return nil
	}
	if err := r.askStore(ctx); err != nil {
		return err
	}
	if err := notServing(r.settings.Load().Rules, counters); err != nil {
		return err
	}
	return nil
}

func notServing(rules *store.Rules, counters []string) *NotServingError {
	for _, c := range counters {
		if x := rules.IndexOf(c); x != nil && (x.Serving.IsZero() || !x.InForce()) {
			return &NotServingError{Group: c, Index: x.Name, Deleting: !x.InForce()}
		}
	}
	return nil
}

// checkedAt is when the index of a group was last checked; zero for any other counter.
func (r *Reader) checkedAt(counter string) (at time.Time) {
	if !countmill.IsGroup(counter) {
		return at
	}
	if set := r.settings.Load(); set != nil {
		if x := set.Rules.IndexOf(counter); x != nil {
			at = x.Checked
		}
	}
	return at
}

// afterGroups is after all groups and before every later name.
const afterGroups = countmill.GroupMark + "\U0010ffff\U0010ffff"

// pastGroups puts the records after all groups in the place of those of groups: a list without a prefix has
// none, because what they count is in their counters too.
func pastGroups(ctx context.Context, view store.View, records []store.Record, limit int) ([]store.Record, error) {
	at := slices.IndexFunc(records, func(rec store.Record) bool { return countmill.IsGroup(rec.Counter) })
	if at < 0 {
		return records, nil
	}
	more, err := view.List(ctx, "", afterGroups, limit-at)
	return append(records[:at], more...), err
}

// listed returns the records without groups whose index does not serve.
func (r *Reader) listed(records []store.Record) []store.Record {
	rules := r.settings.Load().Rules
	return slices.DeleteFunc(slices.Clone(records), func(rec store.Record) bool {
		x := rules.IndexOf(rec.Counter)
		return countmill.IsGroup(rec.Counter) && (x == nil || x.Serving.IsZero() || !x.InForce())
	})
}
