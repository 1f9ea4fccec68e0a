package recount

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// listPage is the most records that one call lists.
const listPage = 1000

// eachRecord visits the records with a prefix, a page at a time. visit may change its page.
func (x *run) eachRecord(ctx context.Context, prefix string, visit func([]store.Record) error) error {
	for after := ""; ; {
		records, err := timed(ctx, x.Recounter, func(ctx context.Context) ([]store.Record, error) {
			return x.view.List(ctx, prefix, after, listPage)
		})
		if err != nil {
			return err
		}
		last := len(records) < listPage
		if !last {
			after = records[len(records)-1].Counter
		}
		if err := visit(records); err != nil || last {
			return err
		}
	}
}

// A stored is the sum of a counter's shards.
type stored struct {
	sum    int128.Int
	shards int // that the record names; 0 without a record
}

// read sums the shards of counters.
func (x *run) read(ctx context.Context, records []store.Record) ([]stored, error) {
	sums := make([]stored, len(records))
	var keys []store.Key
	var of []int
	for i := range records {
		rec := &records[i]
		sums[i] = stored{shards: rec.Shards}
		for n := range rec.Shards {
			keys, of = append(keys, store.Key{Counter: rec.Counter, Shard: n}), append(of, i)
		}
	}
	for len(keys) > 0 {
		n := min(len(keys), store.LookupKeys)
		values, err := timed(ctx, x.Recounter, func(ctx context.Context) ([]store.Value, error) { return x.view.Lookup(ctx, keys[:n]) })
		if err != nil {
			return nil, err
		}
		for i, v := range values {
			s := &sums[of[i]]
			s.sum = s.sum.Add(v.Count)
		}
		keys, of = keys[n:], of[n:]
	}
	return sums, nil
}

// judgeCounters compares the counters of the range.
func (x *run) judgeCounters(ctx context.Context) error {
	recorded := make(map[string]bool)
	err := x.eachRecord(ctx, x.q.Prefix, func(records []store.Record) error {
		records = slices.DeleteFunc(records, func(r store.Record) bool { return countmill.IsGroup(r.Counter) || !x.has(r.Counter) })
		have, err := x.read(ctx, records)
		if err != nil {
			return err
		}
		for i := range records {
			if err := x.judgeCounter(ctx, records[i].Counter, have[i]); err != nil {
				return err
			}
			if x.sums[records[i].Counter] != nil {
				recorded[records[i].Counter] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(x.sums)) {
		if s := x.sums[name]; !recorded[name] && strings.HasPrefix(name, x.q.Prefix) {
			if err := x.judgeMissing(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeMissing reports a counter of the journal that has no record. One whose increments cancel each other needs
// none.
func (x *run) judgeMissing(s *sum) error {
	if reason := x.cover.problem(s.name, x.cover.find(s.name)); reason != "" {
		x.uncovered(s.name, reason)
		return nil
	}
	x.result.Counters++
	if s.delta == (int128.Int{}) && !slices.ContainsFunc(slices.Collect(maps.Values(s.of)), func(sum int128.Int) bool { return sum != int128.Int{} }) {
		return nil
	}
	if err := x.find(Finding{Kind: MissingRecord, Name: s.name, Counted: s.delta}); err != nil {
		return err
	}
	return x.open(s.name, s.delta)
}

func (x *run) judgeCounter(ctx context.Context, name string, have stored) error {
	o := x.cover.find(name)
	if reason := x.cover.problem(name, o); reason != "" {
		x.uncovered(name, reason)
		return x.open(name, have.sum)
	}
	s := x.sums[name]
	if s == nil {
		s = &sum{name: name}
	}
	existed := s.opened
	x.result.Counters++
	if have.sum != s.delta {
		x.shards[name] = have.shards
		if err := x.find(Finding{Kind: WrongTotal, Name: name, Stored: have.sum, Counted: s.delta}); err != nil {
			return err
		}
	}
	if err := x.open(name, s.delta); err != nil {
		return err
	}
	from := wire.Minute(0)
	if existed { // it may have buckets of before
		from = wire.MinuteOf(o.Cut.Key.Time().Add(store.SeriesAhead)) + 1
	}
	return x.judgeSeries(ctx, s, have.shards, from)
}

// judgeSeries compares the buckets of a name that has so many shards, from a minute on.
func (x *run) judgeSeries(ctx context.Context, s *sum, shards int, from wire.Minute) error {
	rule := x.rules.SeriesOf(s.name)
	if rule == nil {
		return nil
	}
	from = max(from, wire.MinuteOf(rule.Since), wire.MinuteOf(x.at.Add(-rule.Keep.Quarters))+store.QuarterMinutes)
	to := store.QuarterOf(wire.MinuteOf(x.at.Add(store.SeriesAhead))) + store.QuarterMinutes
	found, err := timed(ctx, x.Recounter, func(ctx context.Context) ([][]store.Bucket, error) {
		return x.view.Series(ctx, []store.Record{{Counter: s.name, Shards: shards}}, store.QuarterOf(from), to)
	})
	if err != nil {
		return err
	}
	for q, have := range x.quarters(s, found[0], from, to) {
		if err := x.judgeQuarter(s, q, have, from, to); err != nil {
			return err
		}
	}
	return nil
}

// quarters returns the stored buckets by quarter hour, also of quarters of which the journal alone has
// increments.
func (x *run) quarters(s *sum, buckets []store.Bucket, from, to wire.Minute) map[wire.Minute][]store.Bucket {
	quarters := make(map[wire.Minute][]store.Bucket)
	for _, b := range buckets {
		q := store.QuarterOf(b.Minute)
		quarters[q] = append(quarters[q], b)
	}
	for m := range s.of {
		if q := store.QuarterOf(m); m >= from && m < to && quarters[q] == nil {
			quarters[q] = []store.Bucket{}
		}
	}
	return quarters
}

// judgeQuarter compares the buckets of a quarter hour. If minutes of it were joined, nobody knows their sums, and
// only the sum of all is compared.
func (x *run) judgeQuarter(s *sum, q wire.Minute, have []store.Bucket, from, to wire.Minute) error {
	joined := false
	sums, whole, counted := make(map[wire.Minute]int128.Int), int128.Int{}, int128.Int{}
	for _, b := range have {
		joined = joined || b.Quarter
		sums[b.Minute] = sums[b.Minute].Add(b.Sum)
		whole = whole.Add(b.Sum)
	}
	for m := q; m < q+store.QuarterMinutes; m++ {
		counted = counted.Add(s.of[m])
	}
	if joined {
		if q < from || q+store.QuarterMinutes > to {
			return nil
		}
		if x.result.Buckets++; whole != counted {
			return x.find(Finding{Kind: WrongBucket, Name: s.name, Minute: q, Quarter: true, Stored: whole, Counted: counted})
		}
		return nil
	}
	for m := max(q, from); m < min(q+store.QuarterMinutes, to); m++ {
		if none := (int128.Int{}); sums[m] != none || s.of[m] != none {
			x.result.Buckets++
		}
		if sums[m] != s.of[m] {
			if err := x.find(Finding{Kind: WrongBucket, Name: s.name, Minute: m, Stored: sums[m], Counted: s.of[m]}); err != nil {
				return err
			}
		}
	}
	return nil
}
