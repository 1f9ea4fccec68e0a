package aggregator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A job is a set of parts that are committed together.
type job struct {
	parts    []*part
	closed   time.Time     // when its window closed; zero if all of its parts are completions
	widened  time.Duration // pace.widened when its window closed
	attempts int           // attempts that failed or had an unknown outcome
	after    time.Time     // no attempt before this time
	lookup   bool          // look up markers before the next commit
	waits    bool          // for a shard that another commit holds
	// contended is true if the last commit of some of its parts ended with ErrContended. The
	// records of its counters are then read again.
	contended bool
	half      bool // the job is one half of another
	entities  int  // that its commit writes, if the store bounds them
	// archive is store.Commit.Archive: entities has the buckets before it.
	archive wire.Minute
	// completions are committed with the parts, after which every part of their messages is settled. They stay
	// behind as soon as the job does not commit all of its parts at once.
	completions []*part
	// taken is store.Commit.Taken: the parts are sums of these increments.
	taken []int64
}

// pack cuts parts into jobs by the present rules.
func (l *loop) pack(parts []*part) []*job {
	rules := l.a.Settings().Rules
	return pack(parts, l.a.limits.Entities, l.a.lateness(), newGrouper(rules), newJournaler(rules))
}

// pack cuts a window into jobs that fit the store. It keeps parts whole, and sorts them as
// publishers cut them, so that parts with common counters share entities. limit is the most
// entities of a commit, 0 for no limit. Every part fits alone, with at most 24 counters, 4 groups of
// each and a marker, twice that if its minute is in the archive, and 25 more with a journal. late counts entities of series, groups those of indexes, and evidence those of the journal.
// Counters of one group are near each other in that order if their names begin alike, so few commits of
// a window write the group.
func pack(parts []*part, limit int, late *lateness, groups *grouper, evidence *journaler) []*job {
	if limit == 0 {
		return []*job{{parts: parts}}
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return cmp.Compare(firstOrder(a), firstOrder(b)) })
	var jobs []*job
	var open *job
	entities := 0
	counters := make(map[string]struct{})
	for _, p := range parts {
		more := countNew(p, counters, groups) + late.countNew(p) + evidence.countNew(p)
		if open == nil || entities+more > limit || late.full(p) {
			open, entities = &job{archive: late.archive()}, 0
			clear(counters)
			late.clear()
			evidence.clear()
			jobs = append(jobs, open)
			more = countNew(p, counters, groups) + late.countNew(p) + evidence.countNew(p)
		}
		late.take(p)
		evidence.take(p)
		open.parts = append(open.parts, p)
		entities += more
		open.entities = entities
		for i := range p.Entries {
			counters[p.Entries[i].Counter] = struct{}{}
		}
		groups.eachOf(p, func(group []byte) {
			if _, ok := counters[string(group)]; !ok {
				counters[string(group)] = struct{}{}
			}
		})
	}
	return jobs
}

// firstOrder is the wire.Order of the first entry.
func firstOrder(p *part) uint64 {
	if len(p.Entries) == 0 {
		return 0
	}
	return wire.Order(p.Entries[0].Counter)
}

// countNew is at least the number of entities that p adds to a commit that already writes counters. It
// may count a group several times.
func countNew(p *part, counters map[string]struct{}, groups *grouper) int {
	n := 0
	if p.marked {
		n = 1
	}
	for i := range p.Entries {
		if _, ok := counters[p.Entries[i].Counter]; !ok {
			n++
		}
	}
	groups.eachOf(p, func(group []byte) {
		if _, ok := counters[string(group)]; !ok {
			n++
		}
	})
	return n
}

// halve splits a job. The parts keep their ids and therefore their markers.
func (j *job) halve() []*job {
	if len(j.parts) < 2 {
		return []*job{j}
	}
	a, b := *j, *j
	a.half, b.half = true, true
	a.completions, b.completions = nil, nil
	middle := len(j.parts) / 2
	a.parts, b.parts = j.parts[:middle:middle], j.parts[middle:]
	return []*job{&a, &b}
}

// singles splits a job into one job for each part.
func (j *job) singles() []*job {
	jobs := make([]*job, 0, len(j.parts))
	for _, p := range j.parts {
		one := *j
		one.parts, one.contended, one.completions = []*part{p}, false, nil // else the next window would put them together again
		jobs = append(jobs, &one)
	}
	return jobs
}

// merge sums the entries of the parts by counter, sorted by wire.Order, all with Shard 0. Sums of
// 0 are left out.
func merge(parts []*part) []store.ShardDelta {
	n := 0
	for _, p := range parts {
		n += len(p.Entries)
	}
	m := merging{adds: make([]store.ShardDelta, 0, n)}
	for _, p := range parts {
		m.take(p)
	}
	return m.sum()
}

// merging gathers entries.
type merging struct {
	adds []store.ShardDelta
	runs []int // start of each ascending run in adds
}

func (m *merging) take(p *part) {
	for i := range p.Entries {
		e := &p.Entries[i]
		a := store.ShardDelta{Counter: e.Counter, Delta: e.Delta}
		a.Order, a.Hash = wire.Hashes(e.Counter)
		if len(m.adds) == 0 || compareAdds(m.adds[len(m.adds)-1], a) > 0 {
			m.runs = append(m.runs, len(m.adds))
		}
		m.adds = append(m.adds, a)
	}
}

func (m *merging) sum() []store.ShardDelta { return sumAdjacent(sortRuns(m.adds, m.runs)) }

// shortRun is the mean length of runs below which merging is not faster than sorting.
const shortRun = 256

// sortRuns sorts adds that consist of ascending runs. There are few runs, because publishers sort
// each batch and request. It merges neighbouring runs until one is left (Knuth, The Art of
// Computer Programming, volume 3, 5.2.4, natural merge sort).
func sortRuns(adds []store.ShardDelta, runs []int) []store.ShardDelta {
	if len(runs) < 2 {
		return adds
	}
	if len(runs) > len(adds)/shortRun {
		slices.SortFunc(adds, compareAdds)
		return adds
	}
	into := make([]store.ShardDelta, 0, len(adds))
	for len(runs) > 1 {
		begin := func(run int) int {
			if run < len(runs) {
				return runs[run]
			}
			return len(adds)
		}
		for i := 0; i < len(runs); i += 2 {
			into = mergeTwo(into, adds[runs[i]:begin(i+1)], adds[begin(i+1):begin(i+2)])
		}
		merged := runs[:0]
		for i := 0; i < len(runs); i += 2 {
			merged = append(merged, runs[i])
		}
		adds, into, runs = into, adds[:0], merged
	}
	return adds
}

// mergeTwo appends the merge of two runs.
func mergeTwo(into, a, b []store.ShardDelta) []store.ShardDelta {
	for len(a) > 0 && len(b) > 0 {
		if compareAdds(a[0], b[0]) <= 0 {
			into, a = append(into, a[0]), a[1:]
		} else {
			into, b = append(into, b[0]), b[1:]
		}
	}
	return append(append(into, a...), b...)
}

// sumAdjacent sums the adds of each counter. Every sum fits: otherwise a caller could send thousands of increments that need
// a commit each.
func sumAdjacent(adds []store.ShardDelta) []store.ShardDelta {
	merged := adds[:0]
	for i := 0; i < len(adds); {
		first := adds[i]
		sum := first.Sum()
		for i++; i < len(adds) && adds[i].Order == first.Order && adds[i].Counter == first.Counter; i++ {
			sum = sum.Add(adds[i].Sum())
		}
		if first.Delta, first.Upper = sum.Halves(); sum != (int128.Int{}) {
			merged = append(merged, first)
		}
	}
	return merged
}

// compareAdds orders the adds of a commit.
func compareAdds(a, b store.ShardDelta) int {
	if c := cmp.Compare(a.Order, b.Order); c != 0 {
		return c
	}
	if c := strings.Compare(a.Counter, b.Counter); c != 0 {
		return c
	}
	return cmp.Compare(a.Shard, b.Shard)
}
