package storetest_test

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// oddIndexing is wrong in the calls that are set.
type oddIndexing struct {
	*fakestore.Store
	swap          func(s *fakestore.Store, old, next []store.IndexRange) error
	ungrouped     func(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error)
	setRemainders func(s *fakestore.Store, p *store.IndexRange, remainders []store.GroupRemainder) error
	drop          func(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (string, error)
	groups        func(s *fakestore.Store, x *store.Index, limit int) (int, error)
}

func indexing(odd oddIndexing) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store {
		made := odd
		made.Store = s
		return made
	}
}

func (o oddIndexing) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	if o.swap == nil {
		return o.Store.SwapRanges(ctx, old, next)
	}
	return o.swap(o.Store, old, next)
}

func (o oddIndexing) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error) {
	if o.ungrouped == nil {
		return o.Store.Ungrouped(ctx, x, p, from, limit)
	}
	return o.ungrouped(o.Store, x, p, from, limit)
}

func (o oddIndexing) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	if o.setRemainders == nil {
		return o.Store.SetRemainders(ctx, p, remainders)
	}
	return o.setRemainders(o.Store, p, remainders)
}

func (o oddIndexing) DropGrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (string, error) {
	if o.drop == nil {
		return o.Store.DropGrouped(ctx, x, p, from, limit)
	}
	return o.drop(o.Store, x, p, from, limit)
}

func (o oddIndexing) DropGroups(ctx context.Context, x *store.Index, limit int) (int, error) {
	if o.groups == nil {
		return o.Store.DropGroups(ctx, x, limit)
	}
	return o.groups(o.Store, x, limit)
}

var background = context.Background()

// storedAs returns the ranges of the same numbers, as they are stored.
func storedAs(s *fakestore.Store, ranges []store.IndexRange) (stored []store.IndexRange) {
	for i := range ranges {
		all, _ := s.Ranges(background, ranges[i].Index)
		for _, p := range all {
			if p.ID == ranges[i].ID {
				stored = append(stored, p)
			}
		}
	}
	return stored
}

// swapAnyway replaces ranges that have changed.
func swapAnyway(s *fakestore.Store, old, next []store.IndexRange) error {
	return s.SwapRanges(background, storedAs(s, old), next)
}

// swapOver replaces ranges that are new and exist.
func swapOver(s *fakestore.Store, old, next []store.IndexRange) error {
	for _, p := range storedAs(s, next) {
		if !slices.ContainsFunc(old, func(o store.IndexRange) bool { return o.ID == p.ID }) {
			old = append(slices.Clone(old), p)
		}
	}
	return s.SwapRanges(background, old, next)
}

// swapForNoIndex accepts ranges of an index that is gone.
func swapForNoIndex(s *fakestore.Store, old, next []store.IndexRange) error {
	if err := s.SwapRanges(background, old, next); !errors.Is(err, store.ErrNoIndex) {
		return err
	}
	return nil
}

// leavingRanges has the first ranges also when their index is gone.
type leavingRanges struct {
	*fakestore.Store
	first []store.IndexRange
}

func (l *leavingRanges) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	err := l.Store.SwapRanges(ctx, old, next)
	if err == nil && old == nil {
		l.first = append(l.first, next[0])
	}
	return err
}

func (l *leavingRanges) Ranges(ctx context.Context, index int64) ([]store.IndexRange, error) {
	ranges, err := l.Store.Ranges(ctx, index)
	for _, p := range l.first {
		if p.Index == index && len(ranges) == 0 {
			return []store.IndexRange{p}, err
		}
	}
	return ranges, err
}

func swapFew(s *fakestore.Store, old, next []store.IndexRange) error {
	if len(old)+len(next) > 100 {
		return store.ErrRefused
	}
	return s.SwapRanges(background, old, next)
}

// lookThenSwap lets others swap between its look and its change.
func lookThenSwap(s *fakestore.Store, old, next []store.IndexRange) error {
	stored := storedAs(s, old)
	if !slices.EqualFunc(stored, old, func(a, b store.IndexRange) bool { return a.Same(&b) }) {
		return store.ErrChanged
	}
	time.Sleep(time.Millisecond)
	for range 100 {
		if err := swapAnyway(s, old, next); !errors.Is(err, store.ErrChanged) {
			return err
		}
	}
	return store.ErrChanged
}

// grouping changes the groupings of commits.
func grouping(change func(c *store.Commit)) func(*fakestore.Store) store.Store {
	return folds(func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
		changed := *c
		changed.Grouped = slices.Clone(c.Grouped)
		change(&changed)
		return s.Fold(ctx, &changed)
	})
}

// groupsFirstOnly keeps one grouped part for a shard.
func groupsFirstOnly(c *store.Commit) {
	for i := range c.Grouped {
		c.Grouped[i].Indexes = c.Grouped[i].Indexes[:1]
	}
}

func groupsPlainOnly(c *store.Commit) {
	if len(c.Buckets) > 0 {
		c.Grouped = nil
	}
}

func losesTheLastOfAPage(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error) {
	page, err := s.Ungrouped(background, x, p, from, limit)
	if page.Next != "" && len(page.Remainders) > 0 {
		page.Shards, page.Remainders = page.Shards-1, page.Remainders[:len(page.Remainders)-1]
	}
	return page, err
}

// startsOverlap reads the place before the range too.
func startsOverlap(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error) {
	wider := *p
	if wider.From > 0 {
		wider.From--
	}
	return s.Ungrouped(background, x, &wider, from, limit)
}

func wrapsRemainders(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error) {
	page, err := s.Ungrouped(background, x, p, from, limit)
	for i := range page.Remainders {
		page.Remainders[i].Remainder = wrapped(page.Remainders[i].Remainder)
	}
	return page, err
}

// readsTwice has the counts of a later moment than the grouped parts.
func readsTwice(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (store.UngroupedPage, error) {
	before := s.Totals()
	page, err := s.Ungrouped(background, x, p, from, limit)
	time.Sleep(time.Millisecond)
	for i := range page.Remainders {
		u := &page.Remainders[i]
		u.Remainder = u.Remainder.Add(int128.Of(s.Total(u.Counter) - before[u.Counter]))
	}
	return page, err
}

// addRemainders adds remainders to those before.
func addRemainders(s *fakestore.Store, p *store.IndexRange, remainders []store.GroupRemainder) error {
	have, _ := s.RemaindersOf(background, p, "", 1000)
	remainders = slices.Clone(remainders)
	for i := range remainders {
		for _, h := range have {
			if h.Group == remainders[i].Group {
				remainders[i].Remainder = remainders[i].Remainder.Add(h.Remainder)
			}
		}
	}
	return s.SetRemainders(background, p, remainders)
}

// setAnybodys sets remainders for a worker that has lost its range.
func setAnybodys(s *fakestore.Store, p *store.IndexRange, remainders []store.GroupRemainder) error {
	stored := storedAs(s, []store.IndexRange{*p})
	if len(stored) == 0 {
		return nil
	}
	return s.SetRemainders(background, &stored[0], remainders)
}

func setFew(s *fakestore.Store, p *store.IndexRange, remainders []store.GroupRemainder) error {
	if len(remainders) == s.Limits().Remainders {
		return store.ErrRefused
	}
	return s.SetRemainders(background, p, remainders)
}

func setCleaned(s *fakestore.Store, p *store.IndexRange, remainders []store.GroupRemainder) error {
	remainders = slices.Clone(remainders)
	for i := range remainders {
		remainders[i].Group = path.Clean(remainders[i].Group)
	}
	return s.SetRemainders(background, p, remainders)
}

// racing keeps the remainders of records itself, and reads a remainder before it moves it.
type racing struct {
	*fakestore.Store
	mu         sync.Mutex
	remainders map[string]int128.Int
}

func (r *racing) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	had, _ := r.RemaindersOf(ctx, p, "", 1000)
	r.mu.Lock()
	moved := make(map[string]int128.Int)
	for _, set := range remainders {
		moved[set.Group] = r.remainders[set.Group].Add(set.Remainder)
		for _, h := range had {
			if h.Group == set.Group {
				moved[set.Group] = moved[set.Group].Sub(h.Remainder)
			}
		}
	}
	r.mu.Unlock()
	err := r.Store.SetRemainders(ctx, p, remainders)
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	for group, rest := range moved {
		r.remainders[group] = rest
	}
	return err
}

func (r *racing) View() store.View { return racingView{r.Store.View(), r} }

type racingView struct {
	store.View
	store *racing
}

func (v racingView) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	values, err := v.View.Lookup(ctx, keys)
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	for i, key := range keys {
		if key.Shard == store.RecordKey && i < len(values) {
			values[i].Remainder = v.store.remainders[key.Counter]
		}
	}
	return values, err
}

// dropAll removes the grouped parts of all indexes.
func dropAll(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (string, error) {
	checked, _ := s.Check(background)
	for i := range checked.Settings.Rules.Indexes {
		_, _ = s.DropGrouped(background, &checked.Settings.Rules.Indexes[i], p, from, limit)
	}
	return s.DropGrouped(background, x, p, from, limit)
}

// dropFirst removes the grouped parts of one page.
func dropFirst(s *fakestore.Store, x *store.Index, p *store.IndexRange, from string, limit int) (string, error) {
	_, err := s.DropGrouped(background, x, p, from, limit)
	return "", err
}

// dropGroupsAnyway ends the index if it has to.
func dropGroupsAnyway(s *fakestore.Store, x *store.Index, limit int) (int, error) {
	n, err := s.DropGroups(background, x, limit)
	if errors.Is(err, store.ErrChanged) {
		_, _ = s.ChangeRules(background, store.RuleChange{Index: &store.IndexChange{Step: store.DeleteIndex, Index: *x}})
		return s.DropGroups(background, x, limit)
	}
	return n, err
}

// dropNone removes no group, and says that none is left.
func dropNone(s *fakestore.Store, x *store.Index, limit int) (int, error) {
	if n, err := s.DropGroups(background, x, 0); n > 0 || err != nil {
		return n, err
	}
	return 0, nil
}

// removesAtOnce forgets an index when its deletion begins.
func removesAtOnce(r *ruling, c store.RuleChange) (store.Settings, error) {
	next, err := r.read().ChangeRules(c, r.Now(), store.RulesSettle)
	if err != nil || c.Index == nil || c.Index.Step != store.DeleteIndex {
		return next, err
	}
	gone := *c.Index
	gone.Step, gone.Index.Number = store.RemoveIndex, next.Rules.Index(gone.Index.Name).Number
	return next.ChangeRules(store.RuleChange{Index: &gone}, r.Now(), store.RulesSettle)
}

// settlesAtOnce has an index in force before the commits by older rules are over.
func settlesAtOnce(r *ruling, c store.RuleChange) (store.Settings, error) {
	return r.read().ChangeRules(c, r.Now(), 0)
}

// takesAnyIndex takes an index whose groups another one has.
func takesAnyIndex(r *ruling, c store.RuleChange) (store.Settings, error) {
	s := r.read()
	next, err := s.ChangeRules(c, r.Now(), store.RulesSettle)
	if err != nil && c.Index.Step == store.CreateIndex {
		return s, nil
	}
	return next, err
}

// apart keeps its rules from its sweeps.
func apart(r *ruling, c store.RuleChange) (store.Settings, error) {
	return r.read().ChangeRules(c, r.Now(), store.RulesSettle)
}

// untimed forgets when an index began to serve.
func untimed(r *ruling, c store.RuleChange) (store.Settings, error) {
	next, err := r.read().ChangeRules(c, r.Now(), store.RulesSettle)
	if err == nil && next.Rules != nil {
		rules := *next.Rules
		rules.Indexes = slices.Clone(rules.Indexes)
		for i := range rules.Indexes {
			rules.Indexes[i].Serving = time.Time{}
		}
		next.Rules = &rules
	}
	return next, err
}

// oldRules folds by any rules.
func oldRules(c *store.Commit) { c.Rules = 1 << 62 }

// withoutRemainder shows records without their remainders.
type withoutRemainder struct{ *fakestore.Store }

func (w withoutRemainder) View() store.View { return restlessView{w.Store.View()} }

type restlessView struct{ store.View }

func (v restlessView) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	records, err := v.View.List(ctx, prefix, after, limit)
	for i := range records {
		records[i].Remainder = int128.Int{}
	}
	return records, err
}

// prefixing lists the remainders of ranges whose numbers begin alike.
type prefixing struct{ *fakestore.Store }

func (l prefixing) RemaindersOf(ctx context.Context, p *store.IndexRange, after string, limit int) (remainders []store.GroupRemainder, err error) {
	for id := p.ID; id < p.ID+20; id++ {
		q := *p
		q.ID = id
		more, err := l.Store.RemaindersOf(ctx, &q, after, limit)
		if err != nil {
			return nil, err
		}
		remainders = append(remainders, more...)
	}
	slices.SortFunc(remainders, func(a, b store.GroupRemainder) int { return strings.Compare(a.Group, b.Group) })
	return remainders[:min(len(remainders), limit)], nil
}
