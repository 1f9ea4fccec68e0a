package reader

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A Window is the time that a board is about. The zero Window is all time: totals.
type Window struct {
	name string
	step Step           // of a calendar window; zero for the sliding hour
	zone *time.Location // of a calendar window
}

const (
	windowLimit = "today, this-week, this-month, 1h, or none for totals"

	// slidingHour is the length of the window 1h. It begins with a whole minute.
	slidingHour = time.Hour
)

// ParseWindow reads today, this-week or this-month, of that zone, or 1h. The error is a
// *countmill.FieldError.
func ParseWindow(text string, zone *time.Location) (Window, error) {
	w := Window{name: text, zone: zone}
	switch text {
	case "":
		return Window{}, nil
	case "today":
		w.step = Step{days: 1}
	case "this-week":
		w.step = Step{days: 7}
	case "this-month":
		w.step = Step{months: 1}
	case "1h":
		w.zone = time.UTC
	default:
		return w, &countmill.FieldError{Field: "window", Problem: "is not known", Limit: windowLimit}
	}
	return w, nil
}

// String names the window and its zone.
func (w Window) String() string {
	if w.zone == nil {
		return w.name
	}
	return w.name + " " + w.zone.String()
}

// slides reports whether minutes drop out of the window as time passes.
func (w Window) slides() bool { return w.name != "" && w.step == Step{} }

// bounds returns the minutes of the window at that moment; the zero Window has none. A calendar window has its
// last minutes too, although nothing was counted there yet. The sliding hour has no end.
func (w Window) bounds(now time.Time) (from, to wire.Minute) {
	if w.slides() {
		return wire.MinuteOf(now.Add(-slidingHour)), wire.MinuteOf(wire.MaxTime)
	}
	begin := w.step.floor(now.In(w.zone))
	return wire.MinuteOf(begin), wire.MinuteOf(w.step.next(begin))
}

// longest is the longest that the window can be.
func (w Window) longest() time.Duration {
	const day = 24 * time.Hour
	switch {
	case w.slides():
		return slidingHour
	case w.step.months > 0:
		return 31*day + time.Hour
	}
	return time.Duration(w.step.days)*day + time.Hour
}

// A NoWindowError says which rule a window needs.
type NoWindowError struct{ Index, Window, Rule string }

func (e *NoWindowError) Error() string {
	return fmt.Sprintf("window %s of index %s needs a series of all its counters: add a rule with countmill rule add series %s", e.Window, e.Index, e.Rule)
}

// covered returns the rule by which all counters of the query keep a series for the window, or a
// *NoWindowError.
func (w Window) covered(rules *store.Rules, q *store.SumsQuery) (*store.Rule, error) {
	prefix := q.Prefix()
	at := slices.IndexFunc(rules.Series, func(r store.Rule) bool { return r.Ended.IsZero() && w.covers(&r, prefix) })
	if at >= 0 {
		return &rules.Series[at], nil
	}
	keep := store.Retention{Quarters: 400 * 24 * time.Hour}
	if w.slides() {
		keep.Minutes = 6 * time.Hour
	}
	return nil, &NoWindowError{Index: q.Index.Name, Window: w.name, Rule: fmt.Sprintf("'%s*=%s'", prefix, keep)}
}

// lacksOverflow reports whether the index has an overflow group of which no rule keeps the window.
func (r *Reader) lacksOverflow(ctx context.Context, w Window, x *store.Index) (bool, error) {
	for _, rule := range r.settings.Load().Rules.Series {
		if rule.Ended.IsZero() && w.covers(&rule, x.Overflow()) {
			return false, nil
		}
	}
	sum, err := r.Sum(ctx, x.Overflow())
	return sum.Exists, err
}

func (w Window) covers(r *store.Rule, prefix string) bool {
	of, isPrefix := strings.CutSuffix(r.Pattern, "*")
	if !isPrefix || !strings.HasPrefix(prefix, of) || r.Keep.Quarters < w.longest() {
		return false
	}
	return !w.slides() || r.Keep.Minutes >= slidingHour
}
