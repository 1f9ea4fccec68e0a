package loadsim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Figures are the results of a run after its warm-up.
type Figures struct {
	Published float64 `json:"published_per_second"` // increments
	Counted   float64 `json:"counted_per_second"`
	Commits   float64 `json:"commits_per_second"` // applied
	Aborted   float64 `json:"aborted"`            // share of all attempts
	// Blocked is the share of the applied commits that waited for a shard that another commit of their aggregator
	// had.
	Blocked float64 `json:"blocked"`
	// Shards of the median counter, of the counter with most, and of the hot counter.
	Shards     int `json:"shards"`
	MostShards int `json:"most_shards"`
	HotShards  int `json:"hot_shards"`
	// Needed is how many shards take the hot counter's commits, all of them full.
	Needed int `json:"needed"`
	// Age is how old increments are when they are committed, 99 % of them at most.
	Age time.Duration `json:"age_p99"`
	// Writes are entities written per million increments counted, records included.
	Writes float64 `json:"writes_per_million"`
	// Raises are of the hot counter's record, in the whole run.
	Raises int `json:"raises"`
	// Grew is when the hot counter got how many shards.
	Grew []Growth `json:"grew"`
	// Reads and Written are of the records of all counters, in the whole run.
	Reads   int `json:"reads"`
	Written int `json:"written"`
	// All is the shards of all counters, AllNeeded how many their commits need. Over
	// is how many counters have more than twice the shards that they need.
	All       int `json:"all"`
	AllNeeded int `json:"all_needed"`
	Over      int `json:"over"`
	// GroupShards are the shards of the median group, and MostGroupShards those of the group with most. GroupNeeded
	// is how many shards take the commits of the group with most commits.
	GroupShards     int `json:"group_shards"`
	MostGroupShards int `json:"most_group_shards"`
	GroupNeeded     int `json:"group_needed"`
	// Cut is how far the run came that took too long; 0 if it came to its end.
	Cut time.Duration `json:"cut"`
}

// Behind reports whether more is published than counted.
func (f *Figures) Behind() bool { return f.Counted < 0.97*f.Published }

// Growth is when a counter got a number of shards.
type Growth struct {
	At     time.Duration `json:"at"`
	Shards int           `json:"shards"`
}

type figures struct {
	w *world

	published, counted          float64
	commits, aborted, blocked   int
	entities, raises, hotRaises int
	reads, written              int
	by                          []int     // commits of each counter
	ages                        []float64 // weight by bucket
	grew                        []Growth
}

func newFigures(w *world) *figures {
	return &figures{w: w, ages: make([]float64, 400), by: make([]int, w.Setup.groups().all())}
}

func (f *figures) on(at time.Duration) bool { return at >= f.w.Warmup }

func (f *figures) sealed(at time.Duration) {
	if f.on(at) {
		f.published += f.w.perMessage()
	}
}

func (f *figures) attempt(at time.Duration, ok bool, entities int) {
	if !f.on(at) {
		return
	}
	if !ok {
		f.aborted++
		return
	}
	f.commits++
	f.entities += entities
}

// agesOf is how many messages of a commit are looked at.
const agesOf = 16

func (f *figures) applied(at time.Duration, j *job, random *rand.Rand) {
	if !f.on(at) {
		return
	}
	if j.waited {
		f.blocked++
	}
	for i := range j.adds {
		f.by[j.adds[i].counter]++
	}
	for _, l := range j.lots {
		f.counted += l.weight * float64(len(l.sealed))
		step := max(1, len(l.sealed)/agesOf)
		for i := random.IntN(step); i < len(l.sealed); i += step {
			age := at - l.sealed[i] + time.Duration(random.Int64N(int64(f.w.PublisherLinger)))
			f.ages[bucket(age)] += l.weight * float64(step)
		}
	}
}

func (f *figures) raised(at time.Duration, counter, shards int) {
	f.written++
	if f.on(at) {
		f.raises++
	}
	if counter != 0 {
		return
	}
	f.hotRaises++
	if len(f.grew) == 0 || f.grew[len(f.grew)-1].Shards < shards {
		f.grew = append(f.grew, Growth{at, shards})
	}
}

// Buckets are 3 % wide, from 10 ms on.
func bucket(age time.Duration) int {
	return min(max(int(math.Log(age.Seconds()/0.01)/math.Log(1.03)), 0), 399)
}

func (f *figures) quantile(q float64) time.Duration {
	var sum, all float64
	for _, n := range f.ages {
		all += n
	}
	for i, n := range f.ages {
		if sum += n; sum >= q*all && all > 0 {
			return time.Duration(0.01 * math.Pow(1.03, float64(i+1)) * float64(time.Second))
		}
	}
	return 0
}

// needed is how many shards take a counter's commits, all of them full.
func (f *figures) needed(counter int) int {
	return int(math.Ceil(float64(f.by[counter]) / f.w.For.Seconds() / f.w.Store.Rate))
}

func (f *figures) sum() Figures {
	seconds := f.w.For.Seconds()
	var all []int
	sum, allNeeded, over := 0, 0, 0
	for i := range f.w.Counters {
		n, need := f.w.store.records[i].shards, max(f.needed(i), 1)
		all = append(all, n)
		sum, allNeeded = sum+n, allNeeded+need
		if n > 2*need {
			over++
		}
	}
	hot := all[0]
	slices.Sort(all)
	groupShards, mostGroupShards, groupNeeded := f.groups()
	return Figures{
		Published: f.published / seconds, Counted: f.counted / seconds,
		Commits: float64(f.commits) / seconds, Aborted: float64(f.aborted) / max(float64(f.commits+f.aborted), 1),
		Blocked: float64(f.blocked) / max(float64(f.commits), 1),
		Shards:  all[len(all)/2], MostShards: all[len(all)-1], HotShards: hot,
		Needed: f.needed(0),
		Age:    f.quantile(0.99),
		Writes: float64(f.entities+f.raises) / max(f.counted, 1) * 1e6,
		Raises: f.hotRaises, Grew: f.grew,
		Reads: f.reads, Written: f.written, All: sum, AllNeeded: allNeeded, Over: over,
		GroupShards: groupShards, MostGroupShards: mostGroupShards, GroupNeeded: groupNeeded,
	}
}

// groups returns the shards of the median group and of the one with most, and how many a group needs at most.
func (f *figures) groups() (median, most, needed int) {
	var all []int
	for i := f.w.Counters; i < len(f.w.store.records); i++ {
		all = append(all, f.w.store.records[i].shards)
		needed = max(needed, f.needed(i))
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1], needed
}
