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

// Is makes errors.Is(err, countmill.ErrUnavailable) true.
func (e *NotServingError) Is(target error) bool { return target == countmill.ErrUnavailable }

// checkGroups returns a *NotServingError for the first group whose index does not serve. It asks the
// store again before that, and if it knows no index of a group: the index may be new.
func (r *Reader) checkGroups(ctx context.Context, counters []string) error {
	if !slices.ContainsFunc(counters, countmill.IsGroup) {
		return nil
	}
	if err := r.checkStore(ctx); err != nil {
		return err
	}
	rules := r.settings.Load().Rules
	known := !slices.ContainsFunc(counters, func(c string) bool { return countmill.IsGroup(c) && rules.IndexOf(c) == nil })
	if known && notServing(rules, counters, time.Time{}) == nil {
		return nil
	}
	if err := r.askStore(ctx); err != nil {
		return err
	}
	return notServing(r.settings.Load().Rules, counters, time.Time{})
}

// checkRead is checkGroups for counters that were read at a moment. It asks the store again if an index
// can have begun or ended between the last check and that moment: the groups of an index are removed
// store.SettingsMaxAge after its end, and another index may then build groups of the same names.
func (r *Reader) checkRead(ctx context.Context, rd *reading, at time.Time) error {
	var groups []string
	rules, old := r.rulesAt(at)
	again := old
	for _, t := range rd.partials {
		if countmill.IsGroup(t.counter) {
			groups = append(groups, t.counter)
			again = again || t.exists && rules.IndexOf(t.counter) == nil
		}
	}
	if len(groups) == 0 {
		return nil
	}
	if !again {
		return notServing(rules, groups, time.Time{}) // these may be newer than before the read
	}
	if err := r.askStore(ctx); err != nil {
		return err
	}
	return notServing(r.settings.Load().Rules, groups, at)
}

// rulesAt returns the rules of the last check. old is true if an index can have begun or ended, and its groups have gone,
// between that check and a moment.
func (r *Reader) rulesAt(at time.Time) (rules *store.Rules, old bool) {
	asked := r.asked.Load() // first: then the rules are not older than it says, see keep
	return r.settings.Load().Rules, asked == nil || at.Sub(*asked) > store.SettingsMaxAge
}

// notServing returns nil, or a *NotServingError for the first group that had no total at a moment; at any
// moment if at is zero.
func notServing(rules *store.Rules, counters []string, at time.Time) error {
	for _, c := range counters {
		x := rules.IndexOf(c)
		if x != nil && (x.Serving.IsZero() || !at.IsZero() && x.Serving.After(at) || !x.InForce()) {
			return &NotServingError{Group: c, Index: x.Name, Deleting: !x.InForce()}
		}
	}
	return nil
}

// servesSince is when the index of a group was built, and checked when it was last checked; both are zero for any other counter.
func (r *Reader) servesSince(counter string) (at, checked time.Time) {
	if !countmill.IsGroup(counter) {
		return at, checked
	}
	if set := r.settings.Load(); set != nil {
		if x := set.Rules.IndexOf(counter); x != nil {
			at, checked = x.Serving, x.Checked
		}
	}
	return at, checked
}

// afterGroups is after all groups and before every later name.
const afterGroups = countmill.GroupMark + "\U0010ffff\U0010ffff"

// pastGroups puts the records after all groups in the place of those of groups: a list without a prefix has
// none, because their counters have the same increments.
func pastGroups(ctx context.Context, view store.View, records []store.Record, limit int) ([]store.Record, error) {
	at := slices.IndexFunc(records, func(rec store.Record) bool { return countmill.IsGroup(rec.Counter) })
	if at < 0 {
		return records, nil
	}
	more, err := view.List(ctx, "", afterGroups, limit-at)
	return append(records[:at], more...), err
}

// listed returns the records without groups that had no total at a moment. It asks the store again as checkRead does, and before it
// leaves one out: the index may serve since the last check.
func (r *Reader) listed(ctx context.Context, records []store.Record, at time.Time) ([]store.Record, error) {
	if !slices.ContainsFunc(records, func(rec store.Record) bool { return countmill.IsGroup(rec.Counter) }) {
		return records, nil
	}
	rules, old := r.rulesAt(at)
	if shown := withTotals(rules, records, at); !old && len(shown) == len(records) {
		return shown, nil
	}
	if err := r.askStore(ctx); err != nil {
		return nil, err
	}
	return withTotals(r.settings.Load().Rules, records, at), nil
}

func withTotals(rules *store.Rules, records []store.Record, at time.Time) []store.Record {
	return slices.DeleteFunc(slices.Clone(records), func(rec store.Record) bool {
		return countmill.IsGroup(rec.Counter) && (rules.IndexOf(rec.Counter) == nil || notServing(rules, []string{rec.Counter}, at) != nil)
	})
}
