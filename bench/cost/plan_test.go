package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/internal/plan"
)

// planTolerance is how far countmill plan may be off.
const planTolerance = 0.2

// The figures of countmill plan are right for three loads that were measured once on
// emulators, and for random deployments. Increments arrive independently of each other, like those of
// many users, and so publishers send at random moments.
func TestPlan(t *testing.T) {
	loads := map[string]plan.Load{
		"hot":                {Rate: 20_000, Counters: 1, Publishers: 10, Aggregators: 1},
		"hot, 4 aggregators": {Rate: 20_000, Counters: 1, Publishers: 10, Aggregators: 4},
		"Zipf":               {Rate: 3000, Counters: 100_000, Zipf: 1.1, Publishers: 10, Aggregators: 1},
		"staleness 1s":       {Rate: 5000, Counters: 1000, Zipf: 1.1, Publishers: 10, Aggregators: 1, CountWithin: time.Second},
		"staleness 3s":       {Rate: 5000, Counters: 10_000, Zipf: 1.1, Publishers: 20, Aggregators: 3, CountWithin: 3 * time.Second},
		"staleness, quiet":   {Rate: 10, Counters: 100, Publishers: 20, Aggregators: 3, CountWithin: time.Second},
		"uniform":            {Rate: 5000, Counters: 10_000, Publishers: 10, Aggregators: 1},

		"groups, uniform":        {Rate: 10_000, Counters: 10_000, Publishers: 25, Aggregators: 1, Groups: 100},
		"groups, 4 aggregators":  {Rate: 10_000, Counters: 10_000, Zipf: 1.1, Publishers: 25, Aggregators: 4, Groups: 20},
		"groups of few counters": {Rate: 10_000, Counters: 10_000, Zipf: 1.1, Publishers: 25, Aggregators: 1, Groups: 3000},
	}
	random := rand.New(rand.NewPCG(31, 32))
	between := func(least, most float64) float64 { return least * math.Pow(most/least, random.Float64()) }
	for range choose(16, 4) {
		l := plan.Load{
			Rate: between(50, 20_000), Counters: int64(between(1, 100_000)), Publishers: int(between(4, 60)), Aggregators: int(between(1, 8)),
			Linger: time.Duration(between(30, 1000)) * time.Millisecond,
		}
		if random.IntN(2) == 0 {
			l.Zipf = 1.1
		}
		loads[fmt.Sprintf("%.0f/s, %d counters, Zipf %g, %d publishers, linger %s, %d aggregators", l.Rate, l.Counters, l.Zipf, l.Publishers, l.Linger, l.Aggregators)] = l
	}
	for name, l := range loads {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { holdAgainstPlan(t, l) })
		})
	}
}

func holdAgainstPlan(t *testing.T, l plan.Load) {
	d := plan.Defaults()
	l.Window, l.DedupWindow, l.ShardRate, l.StartShards, l.MaxShards = d.Window, d.DedupWindow, d.ShardRate, d.StartShards, d.MaxShards
	names, groups := load.Names(int(l.Counters)), map[string]string(nil)
	if l.Groups > 0 {
		names, groups = groupedNames(int(l.Counters), int(l.Groups))
	}
	l.NameBytes, l.Readers, l.CommitTime = len(names[0]), 1, storeTakes
	if l.Linger == 0 {
		l.Linger = d.Linger
	}
	f, ofGroups, seconds := pourRounds(t, l, names, groups)
	planned, err := plan.Make(l)
	if err != nil {
		t.Fatal(err)
	}
	c := planned.Countmill
	for _, figure := range []struct {
		what          string
		measured      float64
		plannedSecond float64
	}{
		{"messages", float64(f.Messages), c.Messages},
		{"markers", float64(f.Markers), c.MarkersWritten},
		{"shards", float64(f.Shards - ofGroups), c.ShardsWritten},
		{"groups", float64(ofGroups), c.GroupsWritten},
		{"commits", float64(f.Commits), c.Commits},
		{"entities written", float64(f.folded()), c.ShardsWritten + c.MarkersWritten + c.GroupsWritten},
	} {
		if figure.what == "groups" && l.Groups == 0 {
			continue
		}
		within(t, figure.what+" a second", figure.measured/seconds, figure.plannedSecond)
	}
}

// pourRounds returns the cost of the load, the number of groups' shards, and how long the load lasts.
//
// The number of windows depends on the moments at which these few publishers begin. So there are several rounds,
// with other moments each.
func pourRounds(t *testing.T, l plan.Load, names []string, groups map[string]string) (f figures, ofGroups int, seconds float64) {
	rounds, lasts := uint64(choose(5, 4)), choose(20*time.Second, 10*time.Second)
	lasts = max(lasts, 30*l.CountWithin) // the last batch leaves early
	writes := groupWrites{window: make(map[string]int)}
	for round := range rounds {
		s := setup{publishers: l.Publishers, aggregators: l.Aggregators, linger: l.Linger, staleness: l.CountWithin, groups: groups}
		if s.staleness > 0 {
			s.linger = 0 // a linger would take precedence
		}
		p := open(t, s)
		p.store.OnFold(writes.fold)
		p.pour(l, names, lasts, round)
		f = f.since(figures{}.since(p.close())) // added up
	}
	writes.windowEnds()
	return f, writes.total, lasts.Seconds() * float64(rounds)
}

// within fails if the plan is off by more than planTolerance.
func within(t *testing.T, what string, measured, planned float64) {
	t.Helper()
	t.Logf("%s: %.1f measured, %.1f planned: %.3f times", what, measured, planned, measured/planned)
	if !(math.Abs(measured/planned-1) <= planTolerance) {
		t.Errorf("%s: %.1f measured, %.1f planned: %.3f times", what, measured, planned, measured/planned)
	}
}

// pour makes every publisher add increments that arrive independently of each other.
func (p *pipeline) pour(l plan.Load, names []string, lasts time.Duration, seed uint64) {
	var wg sync.WaitGroup
	for i, pub := range p.pubs {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		draw := func() int { return random.IntN(len(names)) }
		if l.Zipf > 0 && l.Counters > 1 {
			rank := rand.NewZipf(random, l.Zipf, 1, uint64(l.Counters-1))
			draw = func() int { return int(rank.Uint64()) }
		}
		gap := float64(l.Publishers) / l.Rate * float64(time.Second)
		wg.Go(func() {
			time.Sleep(time.Duration(random.Int64N(int64(l.Linger))))
			begin := time.Now()
			for at := 0.0; at < float64(lasts); at += random.ExpFloat64() * gap {
				time.Sleep(time.Until(begin.Add(time.Duration(at))))
				p.add(pub, names[draw()])
			}
		})
	}
	wg.Wait()
}
