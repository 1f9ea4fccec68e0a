package loadsim

import (
	"cmp"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/countmill/countmill/internal/shards"
)

// A world is one run.
type world struct {
	Setup
	events   events
	store    *store
	contents *contents
	figures  *figures
	names    []string
	random   *rand.Rand

	aggregators    []*aggregator
	windowMessages int
}

// epoch is when virtual time begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) time(at time.Duration) time.Time { return epoch.Add(at) }

func newWorld(s Setup) *world {
	s = s.withDefaults()
	w := &world{Setup: s, random: rand.New(rand.NewPCG(s.Seed, 1)), contents: newContents(&s)}
	w.store = newStore(&s, cmp.Or(s.Start, shards.Start))
	w.figures = newFigures(w)
	w.windowMessages = w.contents.full(windowMessages, windowCounters)
	for i := range s.groups().all() {
		w.names = append(w.names, "counter-"+strconv.Itoa(i))
	}
	for i := range s.Aggregators {
		a := &aggregator{
			w: w, random: rand.New(rand.NewPCG(s.Seed, uint64(2+2*i))),
			chooser: s.Choice(&s, rand.NewPCG(s.Seed, uint64(3+2*i))),
			linger:  fixed(s.Window), shards: make([]uint16, s.groups().all()),
		}
		if s.Reread > 0 {
			a.read = make([]time.Duration, s.groups().all())
		}
		if s.Widen > 0 {
			a.linger = &widening{least: s.Window, most: s.Widen}
		}
		w.aggregators = append(w.aggregators, a)
	}
	for range s.Publishers {
		w.events.plan(time.Duration(w.random.Int64N(int64(s.PublisherLinger))), w.seal)
	}
	return w
}

// seal is a publisher's message: it goes to some aggregator, and the next one follows.
func (w *world) seal(at time.Duration) {
	a := w.aggregators[w.random.IntN(len(w.aggregators))]
	delay := time.Duration(w.random.ExpFloat64() * float64(w.Bus))
	w.events.plan(at+delay, func(arrived time.Duration) { a.deliver(arrived, at) })
	w.figures.sealed(at)
	w.events.plan(at+w.PublisherLinger, w.seal)
}

// cut makes jobs of a window.
func (w *world) cut(window []time.Duration, random *rand.Rand) []*job {
	c := w.contents
	of := &taken{messages: len(window)}
	var jobs []*job
	if c.whole() {
		for rest := window; len(rest) > 0; {
			n := c.together(len(rest))
			jobs = append(jobs, &job{lots: []lot{{of, rest[:n:n], w.perMessage()}}, parts: n, adds: w.wholeAdds(n, random)})
			rest = rest[n:]
		}
	} else {
		widest := c.widest(len(window))
		first := random.IntN(c.counters)
		for done := 0; done < c.counters; {
			ranks := min(widest, c.counters-done)
			p := c.profile(cut{len(window), ranks})
			jobs = append(jobs, &job{
				lots:  []lot{{of, window, w.perMessage() * float64(ranks) / float64(c.counters)}},
				parts: p.parts, adds: c.draw(p, len(window), first, random),
			})
			first, done = (first+ranks)%c.counters, done+ranks
		}
	}
	of.jobs = len(jobs)
	return jobs
}

// wholeAdds are the counters of that many messages of one part each.
func (w *world) wholeAdds(messages int, random *rand.Rand) []add {
	c := w.contents
	var adds []add
	all, hot := c.chance(c.p, 1, messages), c.chance(c.hot, 1, messages)
	for i := range c.counters {
		q := all
		switch {
		case c.each != nil:
			q = c.chance(c.each[i], 1, messages)
		case i == 0 && c.hot > 0:
			q = hot
		}
		if q > 0.999999 || random.Float64() < q {
			adds = append(adds, add{counter: int32(i)})
		}
	}
	return c.groups.add(adds)
}

// Run simulates, and gives up after Limit.
func Run(s Setup) Figures {
	w := newWorld(s)
	began := time.Now()
	var at time.Duration
	for n := 0; at <= w.Warmup+w.For; n++ {
		e, ok := w.events.next()
		if !ok {
			break
		}
		at = e.at
		if n%1024 == 0 && w.Limit > 0 && time.Since(began) > w.Limit {
			f := w.figures.sum()
			f.Cut = at
			return f
		}
		e.do(e.at)
	}
	return w.figures.sum()
}
