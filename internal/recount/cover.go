package recount

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The reasons why a name is not judged.
const (
	noRule           = "no rule for the journal has it"
	noOpeningBalance = "no opening balance"
	ruleChanged      = "its rule for the journal was changed after the opening balance"
	expired          = "records since the opening balance are gone by now"
	wasErased        = "entries were erased since the opening balance"
)

// What follows the reasons that an opening balance removes. It takes damage as right, so it comes last.
const (
	openLater = ": look for damage with countmill verify, then run recount --opening, which takes the present sums as right"
	openedNow = " until now: this recount took the present sum as right"
)

// An opening balance is an opening balance that this run can use.
type openingBalance struct {
	journal.OpeningBalance
	place store.JournalPlace
}

// A coverage says of which names the journal has everything since an opening balance.
type coverage struct {
	rules           *store.Rules
	openingBalances []openingBalance // the newest first
	at              time.Time
	erased          store.JournalPlace // the last record with an erased entry
}

// find returns the newest opening balance of a counter, or nil.
func (c *coverage) find(counter string) *openingBalance {
	order := uint64(0)
	for i := range c.openingBalances {
		o := &c.openingBalances[i]
		if !strings.HasPrefix(counter, o.Prefix) {
			continue
		}
		if order == 0 {
			order = wire.Order(counter)
		}
		if order >= o.From && order <= o.To {
			return o
		}
	}
	return nil
}

// problem returns why the journal does not prove the counter's total since the opening balance; empty if it does.
func (c *coverage) problem(counter string, o *openingBalance) string {
	rule := c.rules.JournalOf(counter)
	switch {
	case rule == nil:
		return noRule
	case o == nil:
		return noOpeningBalance
	case o.Settings < c.rules.JournalFrom || rule.Since.After(o.Cut.Key.Time()):
		return ruleChanged
	case !c.at.Before(o.Cut.Key.Time().Add(rule.Keep.Entries - time.Hour)):
		return expired
	case c.erased.Compare(o.Cut) >= 0:
		return wasErased
	}
	for i := range c.rules.Journal {
		if r := &c.rules.Journal[i]; r.Version > o.Settings && r.Matches(counter) {
			return ruleChanged
		}
	}
	return ""
}

// readOpeningBalances pins the view, reads the rules, and finds the opening balances. By rules from before the view a counter could seem
// covered whose commits had no records any more.
func (x *run) readOpeningBalances(ctx context.Context) error {
	q := store.JournalQuery{Limit: 1000}
	for {
		page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.JournalPage, error) {
			return x.view.JournalRows(ctx, journal.OpeningBalanceRows, q)
		})
		if err != nil {
			return err
		}
		if x.at.IsZero() {
			x.at = x.view.ReadTime()
			x.cut = store.JournalAt(page.SettledUntil.Add(time.Microsecond))
		}
		for i := range page.Rows {
			o, err := journal.DecodeOpeningBalance(page.Rows[i].Data)
			if err != nil {
				return fmt.Errorf("the opening balance %s: %w", page.Rows[i].Place, err)
			}
			if page.Rows[i].ExpireAt.After(x.at) { // otherwise its record may be gone already
				x.cover.openingBalances = append(x.cover.openingBalances, openingBalance{*o, page.Rows[i].Place})
			}
		}
		if !page.More {
			break
		}
		q.From = page.Rows[len(page.Rows)-1].Place.Next()
	}
	checked, err := timed(ctx, x.Recounter, x.store.Check)
	if err != nil {
		return err
	}
	x.set, x.rules = checked.Settings, checked.Settings.Rules
	x.cover.rules, x.cover.at = x.rules, x.at
	slices.SortStableFunc(x.cover.openingBalances, func(a, b openingBalance) int { return b.Cut.Compare(a.Cut) })
	x.cover.drop(x.q.Prefix)
	return nil
}

// drop leaves out opening balances that the rules have outdated, of other counters, and those of which a newer one has
// everything: the scan of the journal then begins later.
func (c *coverage) drop(prefix string) {
	if c.rules == nil {
		c.openingBalances = nil
		return
	}
	var used []openingBalance
	for _, o := range c.openingBalances {
		covered := slices.ContainsFunc(used, func(n openingBalance) bool {
			return strings.HasPrefix(o.Prefix, n.Prefix) && n.From <= o.From && n.To >= o.To
		})
		related := strings.HasPrefix(o.Prefix, prefix) || strings.HasPrefix(prefix, o.Prefix)
		if !covered && related && o.Settings >= c.rules.JournalFrom {
			used = append(used, o)
		}
	}
	c.openingBalances = used
}

// readBalances reads the balances of the run's counters.
func (x *run) readBalances(ctx context.Context) error {
	for i := range x.cover.openingBalances {
		o := &x.cover.openingBalances[i]
		page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.JournalPage, error) {
			return x.view.JournalRecords(ctx, store.JournalQuery{From: o.place, To: o.place.Next(), Limit: 1})
		})
		if err != nil {
			return err
		}
		if len(page.Records) == 0 {
			return fmt.Errorf("the record %s of an opening balance is missing", o.place)
		}
		content, err := journal.Decode(page.Records[0].Data)
		if err != nil {
			return fmt.Errorf("record %s: %w", o.place, err)
		}
		for p := range content.Parts {
			for e := range content.Parts[p].Entries {
				entry := &content.Parts[p].Entries[e]
				if entry.Erased {
					x.cover.erased = lastPlace // nobody knows whose it was
				} else if x.has(entry.Counter) && x.cover.find(entry.Counter) == o {
					s, err := x.sum(entry.Counter)
					if err != nil {
						return err
					}
					s.opened, s.delta = true, s.delta.Add(journal.Balance(p, entry.Delta))
				}
			}
		}
	}
	return nil
}

var lastPlace = store.JournalPlace{Key: store.NewJournalKey(wire.MaxTime, math.MaxUint64), Position: math.MaxUint32}
