package sim

import (
	"context"
	"fmt"
	"strings"

	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/store"
)

// An indexStore is the store as an Indexer sees it.
type indexStore struct{ *simStore }

var _ indexer.Store = indexStore{}

// Check reads the rules. It does not reach the other roles of its process.
func (s indexStore) Check(ctx context.Context) (checked store.Checked, err error) {
	err = s.call(ctx, "index rules", 0, IndexFails, nil, nil, func() (err error) {
		if s.swapped {
			return errSwapped
		}
		checked, err = s.fake.Check(background)
		checked.At = s.storeNow()
		return err
	})
	return checked, err
}

// ChangeRules makes a step of an index.
func (s indexStore) ChangeRules(ctx context.Context, c store.RuleChange) (set store.Settings, err error) {
	err = s.change(ctx, "index step", stringsKey([]string{c.Index.Index.Name, fmt.Sprint(c.Index.Step)}), IndexLost, IndexAnswerLost, IndexLate,
		func() string { return fmt.Sprint(c.Index.Index.Name, " ", c.Index.Step) }, func() (err error) {
			if set, err = s.fake.ChangeRules(background, c); err == nil {
				s.watch.ruled(set.Rules)
			}
			return err
		})
	return set, err
}

func rangeKey(op string, ranges ...store.IndexRange) uint64 {
	names := []string{op}
	for _, p := range ranges {
		names = append(names, fmt.Sprint(p.Index, p.ID, p.Round, p.Worker, p.Until.UnixMicro()))
	}
	return stringsKey(names)
}

func rangesText(ranges []store.IndexRange) string {
	var b strings.Builder
	for _, p := range ranges {
		fmt.Fprintf(&b, "[%d/%d %x-%x round %d of %q, retired: %t, read %s] ", p.Index, p.ID, p.From>>48, p.To>>48, p.Round, p.Worker, p.Retired, p.Read.Format(clockFormat))
	}
	return b.String()
}

// Ranges lists the ranges of an index.
func (s indexStore) Ranges(ctx context.Context, index int64) (ranges []store.IndexRange, err error) {
	err = s.call(ctx, "ranges", uint64(index), IndexFails, nil, func() string { return rangesText(ranges) }, func() (err error) {
		ranges, err = s.fake.Ranges(background, index)
		return err
	})
	return ranges, err
}

// SwapRanges replaces ranges.
func (s indexStore) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	return s.change(ctx, "swap", rangeKey("swap", append(old, next...)...), IndexLost, IndexAnswerLost, IndexLate,
		func() string { return rangesText(old) + "by " + rangesText(next) },
		func() error { return s.fake.SwapRanges(background, old, next) })
}

// Ungrouped reads a page of a range.
func (s indexStore) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (page store.UngroupedPage, err error) {
	err = s.call(ctx, "ungrouped", rangeKey("ungrouped"+from, *p), IndexFails,
		func() string { return fmt.Sprintf("%s from %q", rangesText([]store.IndexRange{*p}), from) }, func() string { return fmt.Sprint(page.Remainders) },
		func() (err error) {
			page, err = s.fake.Ungrouped(background, x, p, from, limit)
			return err
		})
	return page, err
}

// SetRemainders sets remainders, now or later.
func (s indexStore) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	keyRange := *p
	return s.change(ctx, "set remainders", rangeKey(fmt.Sprint("set", remainders), keyRange), IndexLost, IndexAnswerLost, IndexLate,
		func() string { return rangesText([]store.IndexRange{keyRange}) + fmt.Sprint(remainders) },
		func() error { return s.fake.SetRemainders(background, &keyRange, remainders) })
}

// RemaindersOf lists the remainders of a range.
func (s indexStore) RemaindersOf(ctx context.Context, p *store.IndexRange, after string, limit int) (remainders []store.GroupRemainder, err error) {
	err = s.call(ctx, "remainders", rangeKey("remainders"+after, *p), IndexFails,
		func() string { return rangesText([]store.IndexRange{*p}) }, func() string { return fmt.Sprint(remainders) }, func() (err error) {
			remainders, err = s.fake.RemaindersOf(background, p, after, limit)
			return err
		})
	return remainders, err
}

// DropGrouped removes grouped parts.
func (s indexStore) DropGrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (next string, err error) {
	err = s.change(ctx, "drop grouped", rangeKey("drop"+from, *p), IndexLost, IndexAnswerLost, IndexLate, nil, func() error {
		found, err := s.fake.DropGrouped(background, x, p, from, limit)
		if err == nil {
			next = found
		}
		return err
	})
	return next, err
}

// DropGroups removes groups, and with them their series.
func (s indexStore) DropGroups(ctx context.Context, x *store.Index, limit int) (dropped int, err error) {
	err = s.change(ctx, "drop groups", uint64(x.Number), IndexLost, IndexAnswerLost, IndexLate, nil, func() (err error) {
		for group := range s.fake.Totals() {
			if x.HasGroup(group) {
				s.swept[group] = s.Steps
			}
		}
		dropped, err = s.fake.DropGroups(background, x, limit)
		return err
	})
	return dropped, err
}
