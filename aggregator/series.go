package aggregator

import (
	"cmp"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A tally is the content of a commit: its sums for totals, groups and series.
type tally struct {
	adds    []store.ShardDelta
	buckets []store.BucketDelta
	grouped []store.Grouping
	// overflowed is the number of sums of counters that are in an overflow group.
	overflowed int

	version, restores int64     // of the settings whose rules decided about groups and buckets
	now               time.Time // the store's time
}

// sumsOf sums the entries of the parts.
func (a *Aggregator) sumsOf(parts []*part) (c tally) {
	s := a.settings.Load()
	c.version, c.restores = s.Version, s.Restores
	if s.Rules == nil {
		c.adds = merge(parts)
		return c
	}
	c.now = a.clock.Now()
	c.byMinute(parts, s.Rules, c.now)
	return c
}

// byMinute sums by counter, and for counters under a rule by counter and minute: +5 at 12:00 and -5
// at 12:01 are two buckets, although they leave the total as it is.
func (c *tally) byMinute(parts []*part, rules *store.Rules, now time.Time) {
	bucketOf := func(p *part) wire.Minute { return countedAt(p, now) }
	minutes := make(map[wire.Minute]*merging)
	for minute, n := range countBy(parts, bucketOf) {
		minutes[minute] = &merging{adds: make([]store.ShardDelta, 0, n)}
	}
	for _, p := range parts {
		minutes[bucketOf(p)].take(p)
	}
	if len(minutes) == 1 {
		c.oneMinute(minutes, rules)
	} else {
		c.manyMinutes(minutes, rules)
	}
}

// countedAt is the minute at which the entries of a part count.
func countedAt(p *part, now time.Time) wire.Minute {
	// A clock is ahead: the minute of the fold is the best that is known.
	if p.minute > wire.MinuteOf(now.Add(store.SeriesAhead)) {
		return wire.MinuteOf(now)
	}
	return p.minute
}

// countBy counts the entries of the parts by minute.
func countBy(parts []*part, bucketOf func(*part) wire.Minute) map[wire.Minute]int {
	counts := make(map[wire.Minute]int)
	for _, p := range parts {
		counts[bucketOf(p)] += len(p.Entries)
	}
	return counts
}

// oneMinute is the usual case: all increments of a window are of one minute.
func (c *tally) oneMinute(minutes map[wire.Minute]*merging, rules *store.Rules) {
	for minute, m := range minutes {
		c.adds = m.sum()
		grouper := newGrouper(rules)
		c.merge(grouper.sums(c.adds))
		c.overflowed = grouper.overflows()
		for i := range c.adds {
			if rules.SeriesOf(c.adds[i].Counter) == nil {
				continue
			}
			if c.buckets == nil {
				c.buckets = make([]store.BucketDelta, 0, len(c.adds)-i)
			}
			c.buckets = append(c.buckets, store.BucketDelta{Add: i, Minute: minute, Delta: c.adds[i].Delta, Upper: c.adds[i].Upper})
		}
	}
}

// merge adds groups to the sums, and notes the indexes of each.
func (c *tally) merge(groups []store.ShardDelta, sets [][]int64) {
	if len(groups) > 0 {
		c.adds = mergeTwo(make([]store.ShardDelta, 0, len(c.adds)+len(groups)), c.adds, groups)
	}
	for i := 0; len(sets) > 0; i++ {
		if countmill.IsGroup(c.adds[i].Counter) {
			continue
		}
		if len(sets[0]) > 0 {
			c.grouped = append(c.grouped, store.Grouping{Add: i, Indexes: sets[0]})
		}
		sets = sets[1:]
	}
}

// A timed is a sum of one minute.
type timed struct {
	store.ShardDelta
	minute  wire.Minute
	indexes []int64
}

func (c *tally) manyMinutes(minutes map[wire.Minute]*merging, rules *store.Rules) {
	n := 0
	for _, m := range minutes {
		n += len(m.adds)
	}
	all := make([]timed, 0, n)
	groups := newGrouper(rules)
	for minute, m := range minutes {
		adds := m.sum()
		more, sets := groups.sums(adds)
		for i := range adds {
			a := timed{ShardDelta: adds[i], minute: minute}
			if sets != nil {
				a.indexes = sets[i]
			}
			all = append(all, a)
		}
		for i := range more {
			all = append(all, timed{ShardDelta: more[i], minute: minute})
		}
	}
	c.overflowed = groups.overflows()
	slices.SortFunc(all, func(a, b timed) int {
		return cmp.Or(compareAdds(a.ShardDelta, b.ShardDelta), cmp.Compare(a.minute, b.minute))
	})
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Order == all[0].Order && all[n].Counter == all[0].Counter {
			n++
		}
		c.add(all[:n], rules.SeriesOf(all[0].Counter) != nil)
		all = all[n:]
	}
}

// add adds the sums of one counter. A total of 0 is left out, unless a series has its parts.
func (c *tally) add(counter []timed, series bool) {
	var sum int128.Int
	for i := range counter {
		sum = sum.Add(counter[i].Sum())
		if series {
			c.buckets = append(c.buckets, store.BucketDelta{Add: len(c.adds), Minute: counter[i].minute, Delta: counter[i].Delta, Upper: counter[i].Upper})
		}
	}
	total, moves := counter[0].ShardDelta, sum != int128.Int{}
	total.Delta, total.Upper = sum.Halves()
	if series || moves {
		if set := counter[0].indexes; len(set) > 0 && moves {
			c.grouped = append(c.grouped, store.Grouping{Add: len(c.adds), Indexes: set})
		}
		c.adds = append(c.adds, total)
	}
}
