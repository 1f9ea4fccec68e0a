package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// A history is the rules that decide which counters have series.
type history struct {
	rules store.Rules
	begin time.Time // of the newest rule in use
	of    string    // its pattern
}

// askRules asks for the rules of the database, if they matter.
func (im *importer) askRules(ctx context.Context) error {
	if !im.Form.Series {
		return nil
	}
	rules, err := im.Client.Rules(ctx)
	if err != nil {
		return fmt.Errorf("rules for series: %w; nothing was counted", err)
	}
	im.history = &history{}
	for _, r := range rules.Series {
		if r.Ended != nil {
			continue
		}
		keep, err := store.ParseRetention(r.Keep)
		if err != nil {
			return fmt.Errorf("rules for series: %q: %w; nothing was counted", r.Pattern, err)
		}
		im.history.rules.Series = append(im.history.rules.Series, store.SeriesRule{Pattern: r.Pattern, Keep: keep, Since: r.Begin})
	}
	return nil
}

// past refuses rows that no series can have, and rows that are older than their series keep: their totals
// would have them, and no row.
func (h *history) past(began time.Time) CheckRow {
	return func(inc countmill.Increment) error {
		age := began.Sub(inc.Time)
		wrong := &countmill.FieldError{Field: "time", Problem: inc.Time.UTC().Format(time.RFC3339)}
		switch rule := h.longest(inc.Counter); {
		case inc.Time.IsZero():
			wrong.Problem, wrong.Limit = "is missing", "a time in each row, with --series"
		case age < 0, age > store.MaxKeepQuarters-store.MaxWindow:
			wrong.Problem += " is not in the past that series keep"
			wrong.Limit = "in the last 3294 days, with --series"
		case rule != nil && age > rule.Keep.Quarters:
			wrong.Problem += fmt.Sprintf(" is older than the rule for %q keeps of counter %q", rule.Pattern, inc.Counter)
			wrong.Limit = rule.Keep.String()
		default:
			return nil
		}
		return wrong
	}
}

// longest returns the rule that keeps the counter's quarter hours for the longest time, as the store
// does; nil if there is none.
func (h *history) longest(counter string) (longest *store.SeriesRule) {
	for i := range h.rules.Series {
		rule := &h.rules.Series[i]
		if rule.Matches(counter) && (longest == nil || rule.Keep.Quarters > longest.Keep.Quarters) {
			longest = rule
		}
	}
	return longest
}

// note returns an error if a counter of the block has no series.
func (h *history) note(b *Block) error {
	if h == nil {
		return nil
	}
	for _, inc := range b.Good {
		r := h.rules.SeriesOf(inc.Counter)
		if r == nil {
			return fmt.Errorf("%s: no rule keeps a series of %q: add one with countmill rule add series", b.lines(), inc.Counter)
		}
		if r.Since.After(h.begin) {
			h.begin, h.of = r.Since, r.Pattern
		}
	}
	return nil
}

// longestWait is longer than it takes until all processes know a rule.
const longestWait = 5 * time.Minute

// wait waits until every process knows the rules in use: increments that are folded without a rule are in no
// series.
func (h *history) wait(ctx context.Context, start StartProgress) error {
	if h == nil {
		return nil
	}
	left := time.Until(h.begin)
	if left <= 0 {
		return nil
	}
	why := fmt.Sprintf("the rule for %q holds from %s on", h.of, h.begin.UTC().Format(time.RFC3339))
	if left > longestWait {
		return fmt.Errorf("%s: repeat then", why)
	}
	p := start("waiting", "rules", 0)
	defer p.Stop()
	p.Wait(why)
	select {
	case <-time.After(left):
		return nil
	case <-ctx.Done():
		return ErrInterrupted
	}
}
