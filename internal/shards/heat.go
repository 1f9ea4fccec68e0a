package shards

import (
	"math"
	"time"

	"github.com/countmill/countmill/internal/clock"
)

// heat has the observations of a busy counter with its present number of shards.
//
// # Which shard
//
// Commits walk over the shards, one after the other. An aggregator comes back to a shard only
// after all others, and aggregators that walk at the same pace keep their distance. A commit that
// contends is too close behind another aggregator, and the walk continues from a random shard.
// Random shards for each commit would collide all the time; docs/adr/046 compares both.
//
// A walk meets the same neighbours again and again, so its tallies say little about all shards.
// Now and then a commit therefore goes to a random shard, to look.
//
// # How many
//
// Only the load of the upper half of the shards counts. The lower half may also be used by
// aggregators that do not know of the upper half yet.
type heat struct {
	name string
	n    int
	at   int  // the shard at which the walk is; -1 to begin anywhere
	look bool // the last shard was picked at random

	// walked and looked count the commits of this process in the epoch epoch, by walking and by
	// looking.
	epoch          int64
	walked, looked int

	last time.Time // when the last commit ended
	// All fields below fade exponentially. This process made commits commits in the last age
	// seconds.
	age, commits float64
	// The observed tallies covered seconds seconds, in which a shard had others commits of other
	// aggregators. The estimate may be below 0.
	others, seconds float64
	tries, lost     float64
}

const (
	// fade is the time after which an observation counts for 1/e. fadeOwn is the time for this
	// process's own commits: it knows all of them, so a short time is enough.
	fade, fadeOwn = 60 * time.Second, 15 * time.Second
	// looks is the number of looks in a second, for a shard rate of 1. mostLooks is the largest
	// share of the commits that are looks.
	looks     = 0.5
	mostLooks = 0.25
)

// next returns the shard to try first.
func (h *heat) next(n int, rate float64, e *clock.Env) int {
	h.about(n)
	chance := min(mostLooks, looks*rate/max(h.rate(), 0.01))
	if h.look = h.at < 0 || e.Float64() < chance; !h.look {
		h.at = (h.at + 1) % n
		return h.at
	}
	shard := e.IntN(n)
	if h.at < 0 {
		h.at = shard
	}
	return shard
}

// about forgets the observations of another number of shards. It keeps the rate of this process's
// own commits.
func (h *heat) about(n int) {
	if h.n != n {
		*h = heat{name: h.name, n: n, at: -1, epoch: h.epoch, walked: h.walked, looked: h.looked, last: h.last, age: h.age, commits: h.commits}
	}
}

// over notes the end of a commit, and returns the time since the end of the one before.
func (h *heat) over(n int, now time.Time) (gap time.Duration) {
	h.about(n)
	if !h.last.IsZero() {
		gap = max(now.Sub(h.last), 0)
		f, own := math.Exp(-gap.Seconds()/fade.Seconds()), math.Exp(-gap.Seconds()/fadeOwn.Seconds())
		h.age, h.commits = h.age*own+gap.Seconds(), h.commits*own
		for _, sum := range []*float64{&h.others, &h.seconds, &h.tries, &h.lost} {
			*sum *= f
		}
	}
	h.last = now
	return gap
}

// rate is the number of commits that this process makes in a second.
func (h *heat) rate() float64 {
	if h.age < 0.2 {
		return 0 // too little was seen
	}
	return h.commits / h.age
}

// saw notes a shard's tally: commits in the epoch, including the one just now. It subtracts the
// earlier commits of this process: a walk came to the shard once in a round, and a look with
// equal chance. A fractional number is right on average, and is neither rounded nor cut off at 0:
// else chance would look like load.
func (h *heat) saw(commits int, since time.Duration) {
	rounds := float64(h.walked) / float64(h.n)
	if !h.look {
		rounds = math.Floor(rounds)
	}
	h.others += float64(commits-1) - rounds - float64(h.looked)/float64(h.n)
	h.seconds += since.Seconds()
}

// in starts a new epoch if epoch is newer, and reports false if epoch is over.
func (h *heat) in(epoch int64) bool {
	if epoch > h.epoch {
		h.epoch, h.walked, h.looked = epoch, 0, 0
	}
	return epoch == h.epoch
}

// made counts a commit of this process in the present epoch.
func (h *heat) made() {
	if h.look {
		h.looked++
	} else {
		h.walked++
	}
}

// fair reports whether the tally of the shard that was picked last is independent of the order in
// which aggregators walk. It is if the shard was picked at random, if the walk passes all shards
// within an epoch, or if a long pause came before.
func (h *heat) fair(gap time.Duration) bool {
	return h.n == 1 || h.look || gap >= Epoch/2 || h.rate()*Epoch.Seconds() >= float64(h.n)
}

const (
	// busy is the share of its rate that a shard may have on average before the counter needs
	// more shards. While commits contend it is busyLosing. A counter then gets at most
	// 1/busyLosing times the shards that its commits need, even if they are lost for another
	// reason.
	busy, busyLosing = 0.85, 0.6
	// sure is the number of standard deviations by which the load must exceed that share. The
	// load is judged again and again, and one mistake is permanent.
	sure = 1.5
	// step is the least factor by which a counter grows.
	step = 1.25
)

// want is the number of shards that the counter should have. The less was observed, the clearer
// the load must be: a thousand aggregators look, and the one with the largest error must not
// decide. A counter that loses most of its commits is far from its need, and grows in larger
// steps.
//
// Several tallies of one shard in one epoch show the same commits again. So all tallies together
// count for no more than the time since this process began to observe, for all shards.
func (h *heat) want(rate float64) int {
	lost := 0.0
	if h.tries >= 3 {
		lost = h.lost / h.tries
	}
	alone := next(h.n, h.commits, rate*float64(h.n)*h.age, lost)
	seen := h.others + h.rate()*h.seconds/float64(h.n)
	once := min(1, h.age*float64(h.n)/max(h.seconds, 0.001))
	return max(alone, next(h.n, seen*once, rate*h.seconds*once, lost))
}

// next is the number of shards after n; n if that is enough. seen is the number of commits to all
// shards, expected the number that they sustain in the same time, and lost the share of failed
// tries.
func next(n int, seen, expected, lost float64) int {
	// at reports whether the load is at least load, by a margin of z standard deviations of seen,
	// and seen is at least least.
	at := func(load, z, least float64) bool {
		return expected > 0 && seen >= least && seen-z*math.Sqrt(seen)-0.5 >= load*expected
	}
	times := 1.0
	switch {
	case lost >= 0.95 && at(0.5, 0, 2):
		times = 4
	case lost >= 0.8 && at(0.5, 0, 2):
		times = 2
	case lost >= 0.5 && at(busyLosing, 0.5, 3):
		times = 1.4
	case lost >= 0.1 && at(busyLosing, 0.5, 3):
		times = step
	case at(busy, sure, 4):
		times = min(1.5, max(step, (seen-math.Sqrt(seen))/expected))
	}
	return int(math.Ceil(times * float64(n)))
}

// Grown is the number of shards to which a counter grows from start, at a steady load of commits
// a second without contention. rate is the number of commits a second that a shard sustains, and
// most bounds the result. If many processes commit to the counter, it can grow to half as many
// again.
func Grown(start int, commits, rate float64, most int) int {
	for n := start; ; {
		after := next(n, commits*fade.Seconds(), rate*float64(n)*fade.Seconds(), 0)
		if after == n || n >= most {
			return max(start, min(n, most))
		}
		n = after
	}
}
