package transfer

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// A history is the rules that decide which counters have series.
type history struct {
	rules store.Rules
	used  map[string]store.Period // the patterns of the rules in use, with their filled periods
	begin time.Time               // of the newest of them
	of    string                  // its pattern
	ahead time.Duration           // of the server's clock; up to a second less
}

// askRules asks for the rules of the database, if they matter.
func (im *importer) askRules(ctx context.Context) error {
	if !im.Form.Series {
		return nil
	}
	var answer client.Answer
	rules, err := im.Client.Rules(client.WithAnswer(ctx, &answer))
	if err != nil {
		return fmt.Errorf("rules for series: %w; nothing was counted", err)
	}
	im.history = &history{used: make(map[string]store.Period)}
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		im.history.ahead = time.Until(at)
	}
	for _, r := range rules.Series {
		if r.Ended != nil {
			continue
		}
		keep, err := store.ParseRetention(store.KindSeries, r.Keep)
		if err != nil {
			return fmt.Errorf("rules for series: %q: %w; nothing was counted", r.Pattern, err)
		}
		rule := store.Rule{Pattern: r.Pattern, Keep: keep, Since: r.Begin}
		if r.FilledFrom != nil && r.FilledTo != nil {
			rule.Filled = store.Period{From: *r.FilledFrom, To: *r.FilledTo}
		}
		im.history.rules.Series = append(im.history.rules.Series, rule)
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
		case age < 0, age > store.MaxKeep-store.MaxWindow:
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
func (h *history) longest(counter string) (longest *store.Rule) {
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
			return fmt.Errorf("%s: no rule keeps a series of %q: countmill rule add series %s adds one", b.lines(), inc.Counter, store.SuggestRule(inc.Counter))
		}
		h.used[r.Pattern] = r.Filled
		if r.Since.After(h.begin) {
			h.begin, h.of = r.Since, r.Pattern
		}
	}
	return nil
}

// join makes the period that the import completes of those of the rules and p. It returns an error if a rule would have two
// periods, with a time between them.
func (h *history) join(p store.Period) error {
	if h == nil || p == (store.Period{}) {
		return nil
	}
	for pattern, old := range h.used {
		joined := p
		if old != (store.Period{}) {
			if old.To.Before(p.From) || p.To.Before(old.From) {
				return fmt.Errorf("the rule for %q has a complete period already, from %s to %s, and it does not touch that of --complete: import the time between first",
					pattern, old.From.UTC().Format(time.RFC3339), old.To.UTC().Format(time.RFC3339))
			}
			if old.From.Before(joined.From) {
				joined.From = old.From
			}
			if old.To.After(joined.To) {
				joined.To = old.To
			}
		}
		h.used[pattern] = joined
	}
	return nil
}

// fill stores the periods with their rules, after all rows are counted. Nobody knows whether a period has all rows if some
// were in conflict.
func (im *importer) fill(ctx context.Context) error {
	if im.history == nil || im.Complete == (store.Period{}) || im.done.Conflicts > 0 {
		return nil
	}
	for _, pattern := range slices.Sorted(maps.Keys(im.history.used)) {
		p := im.history.used[pattern]
		if _, err := im.Client.FillSeries(ctx, pattern, p.From, p.To); err != nil {
			return fmt.Errorf("%s: all rows are counted, but the period of --complete is not stored with the rule for %q: %w; run it again", im.Name, pattern, err)
		}
	}
	return nil
}

// longestWait is longer than it takes until all processes know a rule.
const longestWait = store.RulesSettle

// wait waits until every process knows the rules in use: increments that are folded without a rule are in no
// series.
func (h *history) wait(ctx context.Context, say io.Writer) error {
	if h == nil {
		return nil
	}
	left := time.Until(h.begin) - h.ahead
	if left <= 0 {
		return nil
	}
	why := fmt.Sprintf("the rule for %q holds from %s on", h.of, h.begin.UTC().Format(time.RFC3339))
	if left > longestWait {
		return fmt.Errorf("%s: repeat then", why)
	}
	fmt.Fprintf(say, "countmill: waiting: %s\n", why)
	if !clock.Sleep(ctx, left) {
		return ErrInterrupted
	}
	return nil
}
