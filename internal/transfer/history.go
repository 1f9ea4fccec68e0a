package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// past refuses rows that no series can have.
func past(began time.Time) CheckTime {
	return func(t time.Time) error {
		switch {
		case t.IsZero():
			return &countmill.FieldError{Field: "time", Problem: "is missing", Limit: "a time in each row, with --series"}
		case t.After(began), began.Sub(t) > store.MaxKeepQuarters-store.MaxWindow:
			return &countmill.FieldError{Field: "time", Problem: t.UTC().Format(time.RFC3339) + " is not in the past that series keep", Limit: "in the last 3294 days, with --series"}
		}
		return nil
	}
}

// A history is the rules that decide which counters have series.
type history struct {
	rules store.Rules
	begin time.Time // of the newest rule in use
	of    string    // its pattern
}

// askRules asks for the rules of the database, if they matter.
func (im *importer) askRules(ctx context.Context) error {
	if !im.History {
		return nil
	}
	rules, err := im.Client.Rules(ctx)
	if err != nil {
		return fmt.Errorf("rules for series: %w; nothing was counted", err)
	}
	im.history = &history{}
	for _, r := range rules.Series {
		if r.Ended == nil {
			im.history.rules.Series = append(im.history.rules.Series, store.SeriesRule{Pattern: r.Pattern, Since: r.Begin})
		}
	}
	return nil
}

// note returns an error if a counter of the block has no series.
func (h *history) note(b *Block) error {
	if h == nil {
		return nil
	}
	for _, inc := range b.Good {
		r := h.rules.SeriesOf(inc.Counter)
		if r == nil {
			return fmt.Errorf("lines %d to %d: no rule keeps a series of %q: add one with countmill rule add series", b.First, b.Last, inc.Counter)
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
