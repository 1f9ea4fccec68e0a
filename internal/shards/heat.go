package shards

import (
	"math"
	"time"
)

// heat has the observations of a busy counter with its present number of shards.
//
// # How many
//
// Only the load of the upper half of the shards counts. The lower half may also be used by
// aggregators that do not know of the upper half yet.
type heat struct {
	name string
	n    int

	epoch int64
	made  int // the commits of this process in epoch

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
)

// about forgets the observations of another number of shards. It keeps the rate of this process's
// own commits.
func (h *heat) about(n int) {
	if h.n != n {
		*h = heat{name: h.name, n: n, epoch: h.epoch, made: h.made, last: h.last, age: h.age, commits: h.commits}
	}
}

// over notes the end of a commit.
func (h *heat) over(n int, now time.Time) {
	h.about(n)
	if !h.last.IsZero() {
		gap := max(now.Sub(h.last), 0)
		f, own := math.Exp(-gap.Seconds()/fade.Seconds()), math.Exp(-gap.Seconds()/fadeOwn.Seconds())
		h.age, h.commits = h.age*own+gap.Seconds(), h.commits*own
		for _, sum := range []*float64{&h.others, &h.seconds, &h.tries, &h.lost} {
			*sum *= f
		}
	}
	h.last = now
}

// rate is the number of commits that this process makes in a second.
func (h *heat) rate() float64 {
	if h.age < 0.2 {
		return 0 // too little was seen
	}
	return h.commits / h.age
}

// saw notes a shard's tally: commits in the epoch, including the one just now. It subtracts the
// earlier commits of this process, which went to each shard with equal chance. The fractional number
// is right on average, and is neither rounded nor cut off at 0: else chance would look like load.
func (h *heat) saw(commits int, since time.Duration) {
	h.others += float64(commits-1) - float64(h.made)/float64(h.n)
	h.seconds += since.Seconds()
}

// in starts a new epoch if epoch is newer, and reports false if epoch is over.
func (h *heat) in(epoch int64) bool {
	if epoch > h.epoch {
		h.epoch, h.made = epoch, 0
	}
	return epoch == h.epoch
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
