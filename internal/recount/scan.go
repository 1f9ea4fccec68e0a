package recount

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A sum is the journal's sum of a counter.
type sum struct {
	name string
	// delta is the opening balance and the increments since.
	delta int128.Int
	// recent is the part of delta after the place of a new opening balance.
	recent int128.Int
	opened bool                       // the opening balance has the counter
	series bool                       // it has buckets
	of     map[wire.Minute]int128.Int // buckets
}

// balance is the sum at the place of a new opening balance.
func (s *sum) balance() int128.Int { return s.delta.Sub(s.recent) }

// sum returns the sum of a name, and makes it.
func (x *run) sum(name string) (*sum, error) {
	s := x.sums[name]
	if s == nil {
		if err := x.hold(); err != nil {
			return nil, err
		}
		s = &sum{name: strings.Clone(name)}
		if s.series = x.rules.SeriesOf(name) != nil; s.series {
			s.of = make(map[wire.Minute]int128.Int)
		}
		x.sums[s.name] = s
	}
	return s, nil
}

// hold counts one more sum.
func (x *run) hold() error {
	if x.held++; x.held > x.cfg.MostSums {
		return &fullError{}
	}
	return nil
}

func (x *run) addBucket(s *sum, m wire.Minute, delta int128.Int) error {
	if !s.series {
		return nil
	}
	was, ok := s.of[m]
	if s.of[m] = was.Add(delta); ok {
		return nil
	}
	return x.hold()
}

// A scanner is one round over the journal.
type scanner struct {
	*run
	round, rounds uint64
	seen          *partSet
	first, last   time.Time
	place         store.JournalPlace
}

// readJournal adds the increments of one round: of the parts that are its share.
func (x *run) readJournal(ctx context.Context, seen *partSet, round, rounds uint64) error {
	if x.rules == nil {
		return nil
	}
	clear(seen.keys) // which keeps the memory
	from := x.cut    // without an opening balance an opening balance can still be made
	for i := range x.cover.openingBalances {
		if o := &x.cover.openingBalances[i]; o.Cut.Compare(from) < 0 {
			from = o.Cut
		}
	}
	s := &scanner{run: x, round: round, rounds: rounds, seen: seen, first: from.Key.Time(), last: x.at}
	q := store.JournalQuery{From: from, Limit: 1000}
	for {
		page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.JournalPage, error) { return x.view.JournalRecords(ctx, q) })
		if err != nil {
			return err
		}
		for i := range page.Records {
			if err := s.record(&page.Records[i]); err != nil {
				return err
			}
		}
		if !page.More || len(page.Records) == 0 {
			return nil
		}
		q.From = page.Records[len(page.Records)-1].Place().Next()
	}
}

func (s *scanner) record(r *store.JournalRecord) error {
	content, err := journal.Decode(r.Data)
	if err != nil {
		return fmt.Errorf("record %s: %w", r.Place(), err)
	}
	s.place = r.Place()
	for i := range content.Parts {
		p := &content.Parts[i]
		for k := range p.Entries {
			if p.Entries[k].Erased {
				s.cover.erased = later(s.cover.erased, s.place)
			}
		}
		if content.Kind != journal.AppliedKind || roundOf(p.ID, s.rounds) != s.round {
			continue
		}
		for k := range p.Entries {
			if e := &p.Entries[k]; !e.Erased {
				if err := s.entry(p, e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func later(a, b store.JournalPlace) store.JournalPlace {
	if b.Compare(a) > 0 {
		return b
	}
	return a
}

// entry counts one entry, unless its part was counted already.
func (s *scanner) entry(p *journal.Part, e *journal.Entry) error {
	s.result.Entries++
	o := s.cover.find(e.Counter)
	covered := o != nil && s.place.Compare(o.Cut) >= 0
	recent := s.q.Open && s.place.Compare(s.cut) >= 0
	if !s.has(e.Counter) || !covered && !recent {
		return nil
	}
	if len(s.seen.keys) >= s.cfg.MostParts {
		return s.full()
	}
	if !s.seen.add(p.ID, s.usedAt(p), e.Counter) {
		return nil
	}
	sum, err := s.sum(e.Counter)
	if err != nil {
		return err
	}
	delta := int128.Of(e.Delta)
	if recent {
		sum.recent = sum.recent.Add(delta)
	}
	if !covered {
		return nil
	}
	sum.delta = sum.delta.Add(delta)
	return s.addBucket(sum, p.Minute, delta)
}

// usedAt is the minute by which partSet distinguishes a copy of a part from a later use of its id: that of the part. Increments of the past
// (publisher.PublishPast) have the minute that their sender says, also if their ids are used again. They go by the time of
// their record, which is at least MinWindow and MarkerSlack later then.
func (s *scanner) usedAt(p *journal.Part) wire.Minute {
	if at := s.place.Key.Time(); p.Minute.Time().Before(at.Add(-store.MarkerSlack)) {
		return wire.MinuteOf(at)
	}
	return p.Minute
}

// full estimates how many rounds are enough, by the part of the journal that was read.
func (s *scanner) full() error {
	read := float64(s.place.Key.Time().Sub(s.first)) / float64(max(s.last.Sub(s.first), 1))
	more := min(max(1/max(read, 0.01), 1.2), 100)
	return &fullError{rounds: s.rounds + uint64(float64(s.rounds)*(more*1.1-1)) + 1}
}
