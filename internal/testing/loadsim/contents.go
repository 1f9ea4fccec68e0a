package loadsim

import (
	"math"
	"math/rand/v2"
	"slices"
)

// contents says what messages hold, and how the parts of a window are cut into commits.
// Counters have ranks in the order of their hashes. A message holds each counter with a
// chance of its own; 24 of its counters, neighbours in rank, are a part. A commit takes the
// parts that begin in a range of ranks, as many as fit, so that two commits write a counter
// where parts of both reach it (package aggregator, pack). Where the first commit begins is
// chance: ranks are taken for a circle.
type contents struct {
	counters int
	groups   groups
	limit    int       // entities of a commit
	p        float64   // that a message holds a counter
	hot      float64   // that it holds the hot one, which has rank 0; or 0
	each     []float64 // that it holds each, where they are not alike
	parts    int       // of a message
	span     float64   // ranks that a part reaches over
	cuts     map[cut]*profile
}

// partEntries is how many entries a part has (package wire).
const partEntries = 24

// A cut is a commit of a window: how many messages the window has, and over how many ranks
// the parts of the commit begin.
type cut struct {
	messages int
	ranks    int
}

// A profile says for each rank, from the first that parts begin at, the chance that the commit
// writes its counter, with parts, the markers of the commit.
type profile struct {
	ranks   int
	chances []float64
	hot     []float64 // the same for the hot counter
	shares  []float64 // of the parts that have a counter
	parts   int
}

func newContents(s *Setup) *contents {
	c := &contents{counters: s.Counters, groups: s.groups(), limit: s.Entities, cuts: make(map[cut]*profile)}
	share, alike := 1.0, s.Counters
	if s.Hot && s.Counters > 1 {
		share, alike = 0.5, s.Counters-1
		c.hot = s.within(share)
	}
	c.p = s.within(share / float64(alike))
	entries := c.p*float64(alike) + c.hot
	if s.Zipf {
		entries = c.zipf(s)
	}
	c.parts = int(math.Ceil(entries / partEntries))
	c.span = float64(s.Counters) / float64(c.parts)
	return c
}

// zipf gives each counter a chance of its own, and p the mean, and returns the entries of a message. The most
// frequent counter is the one of rank 0, which figures call the hot one.
func (c *contents) zipf(s *Setup) (entries float64) {
	sum := 0.0
	for k := range c.counters {
		sum += 1 / float64(k+1)
	}
	c.each = make([]float64, c.counters)
	for k, rank := range rand.New(rand.NewPCG(s.Seed, 0)).Perm(c.counters - 1) {
		c.each[rank+1] = s.within(1 / float64(k+2) / sum)
		entries += c.each[rank+1]
	}
	c.each[0] = s.within(1 / sum)
	entries += c.each[0]
	c.p = entries / float64(c.counters)
	return entries
}

// full is how many messages fill a window, by its markers and counters.
func (c *contents) full(messages, counters int) int {
	distinct := float64(c.counters) // a window that is full has about all
	byMarkers := int(math.Ceil(max(float64(counters)-distinct, 1) / float64(c.parts)))
	return max(1, min(messages, byMarkers))
}

// whole reports whether a message is one part.
func (c *contents) whole() bool { return c.parts == 1 }

// together is how many messages of one part each fit into a commit.
func (c *contents) together(messages int) int {
	for k := 1; ; k++ {
		if k == messages {
			return k
		}
		if n := c.distinct(k + 1); float64(k+1)+n+min(n, float64(c.groups.groups)) > float64(c.limit) {
			return k
		}
	}
}

// distinct is how many counters that many whole messages hold.
func (c *contents) distinct(messages int) float64 {
	n := float64(c.counters) * c.chance(c.p, 1, messages)
	if c.hot > 0 {
		n += c.chance(c.hot, 1, messages) - c.chance(c.p, 1, messages)
	}
	return n
}

// chance is that at least one of messages, each with a counter at chance p, has it in a part
// that a commit takes, where it takes this share of such parts.
func (c *contents) chance(p, share float64, messages int) float64 {
	return 1 - math.Pow(1-p*share, float64(messages))
}

// profile is of a commit that takes the parts that begin within ranks.
func (c *contents) profile(k cut) *profile {
	if p := c.cuts[k]; p != nil {
		return p
	}
	span := int(math.Ceil(c.span))
	p := &profile{ranks: k.ranks, parts: max(1, int(math.Round(float64(k.messages)*float64(k.ranks)/c.span)))}
	for x := range min(k.ranks+span, c.counters) {
		// Of the parts that reach x, begun in (x-span, x], these began within the ranks.
		from, to := max(0, x-span+1), min(x, k.ranks-1)
		share := min(float64(to-from+1)/c.span, 1)
		p.chances = append(p.chances, c.chance(c.p, share, k.messages))
		p.hot = append(p.hot, c.chance(c.hot, share, k.messages))
		p.shares = append(p.shares, share)
	}
	c.cuts[k] = p
	return p
}

func (p *profile) entities() float64 {
	n := float64(p.parts)
	for _, q := range p.chances {
		n += q
	}
	return n
}

// widest is the most ranks whose parts fit into one commit.
func (c *contents) widest(messages int) int {
	low, high := 1, c.counters
	for low < high {
		middle := (low + high + 1) / 2
		k := cut{messages, middle}
		p := c.profile(k)
		if p.entities()+c.groups.reach(len(p.chances)) <= float64(c.limit) {
			low = middle
		} else {
			high = middle - 1
		}
		delete(c.cuts, k)
	}
	return low
}

// draw chooses the counters of a commit whose parts begin at rank first.
func (c *contents) draw(p *profile, messages, first int, random *rand.Rand) []add {
	adds := make([]add, 0, c.limit)
	for x, q := range p.chances {
		rank := (first + x) % c.counters
		switch {
		case c.each != nil:
			q = c.chance(c.each[rank], p.shares[x], messages)
		case rank == 0 && c.hot > 0:
			q = p.hot[x]
		}
		if q > 0.999999 || random.Float64() < q {
			adds = append(adds, add{counter: int32(rank)})
		}
	}
	slices.SortFunc(adds, func(a, b add) int { return int(a.counter - b.counter) })
	return c.groups.add(adds)
}
