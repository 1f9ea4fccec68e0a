package plan

import "math"

// Of aggregator.Config and backend/datastore.
const (
	commitEntities = 400
	commitsAtOnce  = 4
	windowMessages = 10_000
	windowEntities = 100_000 // counters and markers
	windowBytes    = 64 << 20
)

// A window is what an aggregator folds together, on average.
type window struct {
	messages                 float64
	every                    float64 // seconds from one to the next, of an aggregator
	shards, markers, commits float64 // entities written, and commits
	// in is how many of a window's commits a counter of each class is in.
	in []float64

	full   bool // closed before its linger
	waits  bool // closed after its linger, as no commit slot was free
	beyond bool // commits take longer than what comes meanwhile
}

// pack is what a window of m batches is written with. stray is by how many batches windows
// differ.
//
// A counter that is in each batch with the likelihood q is in the window with
// 1 - (1-q)^m. Parts lie in the order of their counters' hashes, each over a stretch of
// 24/entries of all hashes (over all of them where a batch has fewer), and a commit takes
// what begins in its own stretch, 1/commits of all. So the copies of one counter are in
// parts that begin in different commits: they are spread over
//
//	rho = (commits-1) * min(1, 24/entries)
//
// boundaries between commits. Where rho is 1 at most, a boundary lies among a counter's
// parts with that likelihood, and divides them u to 1-u; where it is more, rho-1 commits
// have 1/rho of the parts each, and two at the ends a part u of that.
func pack(of []class, b batch, m, stray float64) window {
	w := window{messages: m * b.messages, markers: m * b.parts, in: make([]float64, len(of))}
	marginal := 0.0 // entities that one batch more or less makes
	for i, c := range of {
		w.in[i] = drawn(c.share, b.increments*m)
		w.shards += c.counters * w.in[i]
		marginal += c.counters * (w.in[i] - drawn(c.share, b.increments*(m-1)))
	}
	stray *= marginal + b.parts
	cut := (b.entries - b.ids) / max(b.parts-b.ids, 1e-9) // entries of a part
	// A part that does not fit begins the next commit: half of its entities stay free,
	// and none where all parts are as large as they can be, as 16 times 25 is 400. More
	// commits have more shards, which make more commits: that ends where each part has its
	// counters for itself.
	for range 50 {
		before := w.commits
		all := w.shards + w.markers
		w.commits = pieces(all, stray, commitEntities-(all/w.markers-1)/2)
		if math.Abs(w.commits-before) < 1e-3*w.commits {
			break
		}
		w.spread(of, b, m, cut)
	}
	return w
}

// spread sets in and shards to what so many commits make of them.
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
		// Parts of increments with ids lie at their counter's own hash: only those that do
		// not fit one commit are in several.
		w.in[i] = max(w.in[i], b.ids*m*c.share/(commitEntities-1))
		w.shards += c.counters * w.in[i]
	}
}

// commitsOf is how many commits have a counter that each of m batches has with likelihood
// q, with rho boundaries of commits among its parts.
func commitsOf(q, m, rho float64) float64 {
	has := func(part float64) float64 { return drawn(q*part, m) }
	ends := func(most float64) float64 { // the mean of has over parts from 0 to most
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

// fold is what each of so many aggregators does.
//
// The window closes late where no commit slot is free: then it is as long as its commits
// take.
func (l Load) fold(of []class, b batch, aggregators int) window {
	rate := float64(l.Publishers) / b.every / float64(aggregators) // of batches, for each
	at := func(every float64) window {
		m := max(rate*every, 1)
		// What comes while a window is open varies like a Poisson process.
		w := pack(of, b, m, math.Sqrt(m-1))
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
	// The longest that it may be: what is held in memory.
	most := bisect(due, 3600, func(every float64) bool { return over(at(every)) })
	if w = at(most); busy(w) > most {
		w.beyond = true
		return w
	}
	w = at(bisect(due, most, func(every float64) bool { return busy(at(every)) <= every }))
	w.waits = true
	return w
}

// due is how long it takes from one window to the next where each of so many aggregators gets
// so many batches a second. With --count-within all batches of a moment are in one window of each
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

// bisect is the least x from a to b at which yes, which stays so, is true; b where it is
// nowhere.
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
