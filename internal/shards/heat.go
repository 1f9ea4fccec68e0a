package shards

import (
	"math"
	"time"

	"github.com/countmill/countmill/internal/sysenv"
)

// heat is what is known of a counter that is not cold, about its present number of shards.
//
// # Which shard
//
// Commits walk over the shards, one after the other: an aggregator comes back to a shard only
// when it has been to all others, and aggregators that walk at the same pace stay as far apart
// as they are. One that meets with contention is too close behind another, and goes on from
// somewhere else. Shards drawn at random meet by chance all the time; docs/evidence/scaling.md compares.
//
// Walking, an aggregator sees the same neighbours again and again, so what it finds on its way
// says little about all shards. Now and then it goes to any shard instead, to have a look.
//
// # How many
//
// What counts is how much the shards have to do that are in the upper half by number: below,
// there may still be aggregators that do not know of the others yet.
type heat struct {
	name string
	n    int
	at   int  // where the walk is
	look bool // the shard picked last was drawn

	// walked and looked are how many commits this process made in the newest epoch that a
	// tally was of.
	epoch          int64
	walked, looked int

	last time.Time // when a commit was last over
	// All of the following fade. commits were made in the last age seconds.
	age, commits float64
	// In the seconds of tallies that the looks looked at, a shard had so many commits of others,
	// by chance even below 0.
	others, seconds float64
	tries, lost     float64
}

const (
	// fade is after how long an observation counts for 1/e, and fadeOwn after how long a commit
	// of this process does: of those all are known, and soon.
	fade, fadeOwn = 60 * time.Second, 15 * time.Second
	// looks are how many a second an aggregator takes, and mostLooks of its commits at most.
	looks     = 0.5
	mostLooks = 0.25
)

// next returns where to begin to search for a shard.
func (h *heat) next(n int, rate float64, e *sysenv.Env) int {
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

// about forgets what is known of another number of shards, other than how often this
// process commits.
func (h *heat) about(n int) {
	if h.n != n {
		*h = heat{name: h.name, n: n, at: -1, epoch: h.epoch, walked: h.walked, looked: h.looked, last: h.last, age: h.age, commits: h.commits}
	}
}

// over notes that a commit is over, and returns how long after the one before.
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

// rate is how many commits a second this process makes.
func (h *heat) rate() float64 {
	if h.age < 0.2 {
		return 0 // that would be a guess
	}
	return h.commits / h.age
}

// saw takes up what a shard's tally shows: commits in the epoch, of them one just now. Those
// that this process made before are not others': a walk came to this shard once in a round, a
// look like to any other. Where that is no whole number it is right on average, and stays
// so as nothing is rounded or cut off at 0: chance must not look like load.
func (h *heat) saw(commits int, since time.Duration) {
	rounds := float64(h.walked) / float64(h.n)
	if !h.look {
		rounds = math.Floor(rounds)
	}
	h.others += float64(commits-1) - rounds - float64(h.looked)/float64(h.n)
	h.seconds += since.Seconds()
}

// in makes epoch the one that walked and looked are of, and reports false if that is over.
func (h *heat) in(epoch int64) bool {
	if epoch > h.epoch {
		h.epoch, h.walked, h.looked = epoch, 0, 0
	}
	return epoch == h.epoch
}

// made counts a commit of this process in its epoch.
func (h *heat) made() {
	if h.look {
		h.looked++
	} else {
		h.walked++
	}
}

// fair reports whether what the shard that was picked last shows is no matter of who walks
// beside whom: it was drawn, or the walk is at its end within an epoch, or nothing is left of
// the time before.
func (h *heat) fair(gap time.Duration) bool {
	return h.n == 1 || h.look || gap >= Epoch/2 || h.rate()*Epoch.Seconds() >= float64(h.n)
}

const (
	// busy is how much of its rate a shard may have to do, on average, before there should be
	// more of them; where commits are lost to contention it is busyLosing: a counter then gets
	// at most 1/busyLosing as many as its commits need, whatever else the commits were lost to.
	busy, busyLosing = 0.85, 0.6
	// sure is how many standard deviations beyond that the load has to be: it is judged
	// again and again, and one mistake is for good.
	sure = 1.5
	// step is how many times as many shards there are after a raise, at least.
	step = 1.25
)

// want is how many shards the counter should have. The less is seen, the clearer it has to be:
// a thousand aggregators look, and the one that is most mistaken must not decide. A counter
// that loses most of its commits is far from what it needs, and goes there in larger steps.
//
// Tallies of one shard that are of one epoch show the same commits again and again. So what
// they showed counts for no more than all shards have done since this process has looked.
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

// next is how many shards come after n, n where that is enough: seen are the commits that they
// had, expected those that they sustain in that time, lost is which part of the tries was.
func next(n int, seen, expected, lost float64) int {
	// at reports whether shards have at least that load, beyond z standard deviations of
	// what was seen, of which there must be so much.
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

// Grown is how many shards a counter comes to that begins with start, at a steady load of so
// many commits a second, none of which is lost; rate is what a shard sustains and most is how many
// there may be. A counter to which many processes commit can come to half as many again.
func Grown(start int, commits, rate float64, most int) int {
	for n := start; ; {
		after := next(n, commits*fade.Seconds(), rate*float64(n)*fade.Seconds(), 0)
		if after == n || n >= most {
			return max(start, min(n, most))
		}
		n = after
	}
}
