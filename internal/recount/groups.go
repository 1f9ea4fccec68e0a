package recount

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A groupSum compares a group with its counters.
type groupSum struct {
	have   stored // the group's own shards and its rest
	counts int64  // the totals of its counters, as they are stored
	// stale is by how much the group's rest will move when its index is checked next.
	stale  int64
	unsure bool // one of its counters is not judged
	// unlisted means that a counter has a shard that no record names: its total lacks that, and the group is right.
	unlisted bool
}

// pieces returns the pieces of the indexes whose groups are judged, by index.
func (x *run) pieces(ctx context.Context) (map[int64][]store.Piece, error) {
	all := make(map[int64][]store.Piece)
	if x.rules == nil || !x.q.totals() {
		return all, nil
	}
	for i := range x.rules.Indexes {
		index := &x.rules.Indexes[i]
		if !index.InForce() || !x.wants(index) {
			continue
		}
		pieces, err := timed(ctx, x.Recounter, func(ctx context.Context) ([]store.Piece, error) { return x.store.Pieces(ctx, index.Number) })
		if err != nil {
			return nil, err
		}
		slices.SortFunc(pieces, func(a, b store.Piece) int { return a.ID - b.ID })
		all[index.Number] = pieces
	}
	return all, nil
}

// judgeGroups compares groups with the totals of their counters. A wrong counter does not make its groups wrong: their own shards have
// its increments. But when the index is checked next, the group's rest follows the counter's shards. So the
// comparison is with the rest as it will be then:
//
//	shards of the group + its rest + (rests read now - rests as they were set) = shards of its counters
//
// and a counter that is corrected changes both sides alike. before are the pieces as they were before the view: if one was
// read since, the rests of the view are others than the set ones.
func (x *run) judgeGroups(ctx context.Context, before map[int64][]store.Piece) error {
	if x.rules == nil {
		return nil
	}
	for i := range x.rules.Indexes {
		index := &x.rules.Indexes[i]
		if !index.InForce() || !x.wants(index) {
			continue
		}
		if err := x.judgeIndex(ctx, index, before); err != nil {
			return err
		}
	}
	return nil
}

func (x *run) judgeIndex(ctx context.Context, index *store.Index, before map[int64][]store.Piece) error {
	groups := make(map[string]*groupSum)
	if err := x.readGroups(ctx, index, groups); err != nil {
		return err
	}
	reason := ""
	if index.Serving.IsZero() {
		reason = building
	} else if x.q.totals() {
		if err := x.readRests(ctx, index, before[index.Number], groups); err != nil {
			return err
		}
		after, err := x.pieces(ctx)
		if err != nil {
			return err
		}
		if x.underWay(before[index.Number]) || !slices.EqualFunc(before[index.Number], after[index.Number], func(a, b store.Piece) bool { return a.Same(&b) }) {
			reason = checking
		}
		corrected, err := x.corrected(ctx, index)
		if err != nil {
			return err
		}
		if corrected {
			reason = correcting
		}
		if reason == "" {
			if err := x.findUnlisted(ctx, index, groups); err != nil {
				return err
			}
		}
	}
	from := x.groupsFrom(index)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if err := x.judgeGroup(ctx, name, groups[name], reason, from); err != nil {
			return err
		}
	}
	return nil
}

func (g *groupSum) differs() bool { return g.have.sum+g.stale != g.counts }

// findUnlisted looks for shards that no record names, if a group differs from its counters. It skips shards that no
// look-up finds, even with a right record: neither the view nor Ungrouped has them.
func (x *run) findUnlisted(ctx context.Context, index *store.Index, groups map[string]*groupSum) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(groups)), (*groupSum).differs) {
		return nil
	}
	for from := ""; ; {
		page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.ShardPage, error) {
			return x.store.ShardPage(ctx, index.Prefix(), from, store.MaxSurveyPage)
		})
		if err != nil {
			return err
		}
		for i := range page.Shards {
			s := &page.Shards[i]
			if s.Number < page.Records[s.Counter] || s.Number >= countmill.MaxShards || s.Bad != "" {
				continue
			}
			if group, ok := index.GroupOf(s.Counter); ok && groups[group] != nil {
				groups[group].unlisted = true
			}
		}
		if from = page.Next; from == "" {
			return nil
		}
	}
}

// underWay reports whether somebody may be setting rests of one of the pieces. The piece itself stays the same meanwhile.
func (x *run) underWay(pieces []store.Piece) bool {
	return slices.ContainsFunc(pieces, func(p store.Piece) bool { return p.Worker != "" && !x.at.After(p.Until.Add(store.MaxTransaction)) })
}

// corrected reports whether another recount has corrected a counter of the index since the view: then the rests that were
// read now have the correction, and the totals of the view do not.
func (x *run) corrected(ctx context.Context, index *store.Index) (bool, error) {
	seen, err := x.corrections(ctx, index, x.view)
	if err != nil {
		return false, err
	}
	later := x.store.JournalView()
	defer later.Close()
	now, err := x.corrections(ctx, index, later)
	return now > seen, err
}

// corrections counts the records that correct counters of the index, from the place on before which the journal of the run's
// view is complete.
func (x *run) corrections(ctx context.Context, index *store.Index, view store.JournalView) (n int, err error) {
	for q := (store.JournalQuery{From: x.cut, Limit: listPage}); ; {
		page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.JournalPage, error) { return view.JournalRecords(ctx, q) })
		if err != nil {
			return 0, err
		}
		for i := range page.Records {
			r := &page.Records[i]
			content, err := journal.Decode(r.Data)
			if err != nil {
				return 0, fmt.Errorf("record %s: %w", r.Place(), err)
			}
			if content.Kind == journal.CorrectionKind && corrects(content, index) {
				n++
			}
		}
		if !page.More || len(page.Records) == 0 {
			return n, nil
		}
		q.From = page.Records[len(page.Records)-1].Place().Next()
	}
}

func corrects(r journal.Record, index *store.Index) bool {
	for i := range r.Parts {
		if slices.ContainsFunc(r.Parts[i].Entries, func(e journal.Entry) bool { return e.Erased || index.Has(e.Counter) }) {
			return true
		}
	}
	return false
}

func (x *run) judgeGroup(ctx context.Context, name string, g *groupSum, reason string, from wire.Minute) error {
	switch {
	case reason != "":
	case g.unsure:
		reason = unsure
	case g.have.overflow:
		reason = tooLarge
	case g.unlisted:
		reason = unlisted
	}
	if reason != "" {
		x.unjudged(name, reason)
		return nil
	}
	if x.compares(name) {
		x.result.Groups++
	} else {
		x.unjudged(name, noSeries)
	}
	if right := g.counts - g.stale; g.have.shards == 0 && right != 0 { // its shards may have that, and nobody sees them
		return x.find(Finding{Kind: MissingRecord, Name: name, Counted: right})
	}
	if x.q.totals() && g.differs() {
		x.shards[name] = g.have.shards
		if err := x.find(Finding{Kind: WrongGroup, Name: name, Stored: g.have.sum, Counted: g.counts - g.stale, wraps: g.have.wraps()}); err != nil {
			return err
		}
	}
	s := x.sums[name]
	if s == nil {
		s = &sum{name: name}
	}
	return x.judgeSeries(ctx, s, from)
}

// groupsFrom is the first minute of complete series of groups: after the index, and after all openings of its
// counters.
func (x *run) groupsFrom(index *store.Index) wire.Minute {
	from := index.Since
	for i := range x.cover.openings {
		if at := x.cover.openings[i].Cut.Key.Time(); at.After(from) {
			from = at
		}
	}
	return wire.MinuteOf(from.Add(store.SeriesAhead+time.Minute)) + 1
}

// readGroups reads the groups of an index that are in the piece, and their counters.
func (x *run) readGroups(ctx context.Context, index *store.Index, groups map[string]*groupSum) error {
	of := func(name string) (*groupSum, error) {
		g := groups[name]
		if g == nil {
			if err := x.hold(); err != nil {
				return nil, err
			}
			g = new(groupSum)
			groups[name] = g
		}
		return g, nil
	}
	err := x.eachRecord(ctx, index.Prefix(), func(records []store.Record) error {
		records = slices.DeleteFunc(records, func(r store.Record) bool {
			group, ok := index.GroupOf(r.Counter)
			return !ok || !x.hasGroup(index, group)
		})
		have, err := x.read(ctx, records)
		if err != nil {
			return err
		}
		for i := range records {
			group, _ := index.GroupOf(records[i].Counter)
			g, err := of(group)
			if err != nil {
				return err
			}
			g.counts += have[i].sum
			g.unsure = g.unsure || have[i].overflow || x.cover.problem(records[i].Counter, x.cover.find(records[i].Counter)) != ""
		}
		return nil
	})
	for _, prefix := range index.GroupPrefixes() {
		if err != nil {
			return err
		}
		err = x.eachRecord(ctx, prefix, func(records []store.Record) error {
			records = slices.DeleteFunc(records, func(r store.Record) bool { return !index.HasGroup(r.Counter) || !x.hasGroup(index, r.Counter) })
			have, err := x.read(ctx, records)
			if err != nil {
				return err
			}
			for i := range records {
				g, err := of(records[i].Counter)
				if err != nil {
					return err
				}
				g.have = have[i]
			}
			return nil
		})
	}
	return err
}

// readRests adds up by how much the rests of groups differ from the set ones.
func (x *run) readRests(ctx context.Context, index *store.Index, pieces []store.Piece, groups map[string]*groupSum) error {
	for i := range pieces {
		p := &pieces[i]
		if p.Retired {
			continue
		}
		if err := x.readUngrouped(ctx, index, p, groups); err != nil {
			return err
		}
		for after := ""; ; {
			set, err := timed(ctx, x.Recounter, func(ctx context.Context) ([]store.GroupRest, error) {
				return x.store.RestsOf(ctx, p, after, listPage)
			})
			if err != nil {
				return err
			}
			for _, r := range set {
				if g := groups[r.Group]; g != nil {
					g.stale -= r.Rest
				}
			}
			if len(set) < listPage {
				break
			}
			after = set[len(set)-1].Group
		}
	}
	return nil
}

func (x *run) readUngrouped(ctx context.Context, index *store.Index, p *store.Piece, groups map[string]*groupSum) error {
	for from := ""; ; {
		page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.UngroupedPage, error) {
			return x.store.Ungrouped(ctx, index, p, from, listPage)
		})
		if err != nil {
			return err
		}
		for i := range page.Rests {
			u := &page.Rests[i]
			if group, ok := index.GroupOf(u.Counter); ok && groups[group] != nil {
				groups[group].stale += u.Rest
				groups[group].unsure = groups[group].unsure || u.Overflow
			}
		}
		if from = page.Next; from == "" {
			return nil
		}
	}
}
