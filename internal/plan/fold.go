package plan

import "math"

// Limits of aggregator.Config and backend/datastore.
const (
	commitEntities = 400
	commitsAtOnce  = 4
	windowMessages = 10_000
	windowEntities = 100_000 // counters plus markers
	windowBytes    = 64 << 20
)

// A window is the average window of an aggregator.
type window struct {
	messages                 float64
	every                    float64 // seconds from one window to the next
	shards, markers, commits float64 // number of entities written, and of commits
	groups                   float64 // sums of groups that are written
	// in is the number of commits of a window that have a counter of each class, and ofGroups that have a
	// group of each of batch.groups.
	in, ofGroups []float64

	full   bool // closed before its linger ended
	waits  bool // closed after its linger, because no commit slot was free
	beyond bool // commits take longer than the window: the aggregators do not keep up
}

// pack computes the writes of a window of m batches. stray is the standard deviation of the
// number of batches.
//
// A counter that is in each batch with probability q is in the window with probability 1 -
// (1-q)^m. Parts are sorted by the hashes of their counters. Each part covers a range of
// 24/entries of all hashes, or all hashes if a batch has fewer entries. A commit takes the parts
// that begin in its own range, which is 1/commits of all. So the copies of one counter are spread
// over
//
//	rho = (commits-1) * min(1, 24/entries)
//
// boundaries between commits. If rho is at most 1, it is the probability that a boundary divides
// a counter's parts, in the ratio u to 1-u. If it is more, rho-1 commits have 1/rho of the parts
// each, and the two commits at the ends have a random part u of that.
func pack(of []class, b batch, m, stray float64) window {
	w := window{messages: m * b.messages, markers: m * (b.parts + b.completions), in: make([]float64, len(of))}
	marginal := 0.0 // entities that one more batch adds
	for i, c := range of {
		w.in[i] = drawn(c.share, b.increments*m)
		w.shards += c.counters * w.in[i]
		marginal += c.counters * (w.in[i] - drawn(c.share, b.increments*(m-1)))
	}
	stray *= marginal + b.parts + b.completions
	cut := (b.entries - b.ids) / max(b.parts-b.ids, 1e-9) // entries in a part
	// A part that does not fit begins the next commit, and leaves half of its entities free on
	// average. None are free if all parts have the largest size, because 16 times 25 is 400. More
	// commits write more shards, which need more commits. That converges at the latest when no
	// two parts share a counter.
	for range 50 {
		before := w.commits
		all := w.shards + w.markers + w.groups
		w.commits = ranges(all, stray, commitEntities-(all/w.markers-1)/2)
		if math.Abs(w.commits-before) < 1e-3*w.commits {
			break
		}
		w.spread(of, b, m, cut)
		w.spreadGroups(b, m)
	}
	return w
}

// spread computes in and shards for the present number of commits.
func (w *window) spread(of []class, b batch, m, cut float64) {
	coalesced := b.increments - b.ids
	rho := (w.commits - 1) * min(1, cut/max(b.entries-b.ids, 1e-9))
	if coalesced <= 0 {
		rho = 0
	}
	w.shards = 0
	for i, c := range of {
		once := drawn(c.share, b.increments*m)
		w.in[i] = once
		if rho > 0 {
			w.in[i] = max(once, commitsOf(drawn(c.share, coalesced), m, rho))
		}
		// Parts of increments with ids are sorted at the hash of their counter: a counter is in
		// several commits only if its parts do not fit one.
		w.in[i] = max(w.in[i], b.ids*m*c.share/(commitEntities-1))
		w.shards += c.counters * w.in[i]
	}
}

// commitsOf is the expected number of commits that have a counter, if each of m batches has it
// with probability q, and rho boundaries of commits are among its parts.
func commitsOf(q, m, rho float64) float64 {
	has := func(part float64) float64 { return drawn(q*part, m) }
	ends := func(most float64) float64 { // mean of has over parts from 0 to most
		if q*most < 1e-9 {
			return m * q * most / 2
		}
		return 1 - drawn(q*most, m+1)/(q*most*(m+1))
	}
	if rho <= 1 {
		return (1-rho)*has(1) + rho*2*ends(1)
	}
	return (rho-1)*has(1/rho) + 2*ends(1/rho)
}

// fold computes the window of each of that many aggregators.
//
// If no commit slot is free, the window closes late: it is then as long as its commits take.
func (l Load) fold(of []class, b batch, aggregators int) window {
	rate := float64(l.Publishers) / b.every / float64(aggregators) // batches a second, for each aggregator
	at := func(every float64) window {
		m := max(rate*every, 1)
		// The number of messages in an open window is Poisson distributed.
		w := pack(of, b, m, math.Sqrt(m-1))
		w.commits += l.completionCommits(b, w.commits, every)
		w.every = every
		return w
	}
	busy := func(w window) float64 { return w.commits * l.CommitTime.Seconds() / commitsAtOnce }
	over := func(w window) bool {
		return w.messages > windowMessages || w.shards+w.markers > windowEntities || w.messages/b.messages*b.bytes > windowBytes
	}
	due := l.due(rate, aggregators)
	w := at(due)
	if over(w) {
		w = at(bisect(1/rate, due, func(every float64) bool { return over(at(every)) }))
		w.full = true
		w.beyond = busy(w) > w.every
		return w
	}
	if busy(w) <= w.every {
		return w
	}
	// The window is at most as long as the memory allows.
	most := bisect(due, 3600, func(every float64) bool { return over(at(every)) })
	if w = at(most); busy(w) > most {
		w.beyond = true
		return w
	}
	w = at(bisect(due, most, func(every float64) bool { return busy(at(every)) <= every }))
	w.waits = true
	return w
}

// completionCommits is the number of further commits of a window, because of completion markers. A completion marker is in the commit
// of its message's parts if they are all in one. Otherwise it is committed after them, or in the next
// window if that ends before them.
func (l Load) completionCommits(b batch, commits, every float64) float64 {
	if b.completions == 0 || l.CommitTime.Seconds() > every {
		return 0
	}
	return min(max(commits-1, 0), 1) // the part of the windows that several commits divide, if that many do on average
}

// due is the time in seconds from one window to the next, if each of that many aggregators gets
// rate batches a second. With CountWithin, all batches of a moment are in one window of each
// aggregator that gets any.
func (l Load) due(rate float64, aggregators int) float64 {
	if l.CountWithin == 0 {
		return l.Window.Seconds() + 1/rate
	}
	batches := rate * float64(aggregators) * l.within()
	if aggregators == 1 {
		return l.within() / min(batches, 1)
	}
	return l.within() / -math.Expm1(batches*math.Log1p(-1/float64(aggregators)))
}

// bisect is the least x from a to b at which yes is true, or b if there is none. yes must be
// monotonic.
func bisect(a, b float64, yes func(x float64) bool) float64 {
	for range 40 {
		middle := (a + b) / 2
		if yes(middle) {
			b = middle
		} else {
			a = middle
		}
	}
	return b
}
