package loadsim

import (
	"cmp"
	"math"
	"time"
)

// A Load has the increments, the counters, and the number of processes.
type Load struct {
	Increments float64 // a second, of all publishers
	Counters   int
	Hot        bool // one counter gets half of all increments, the others share the rest; else all are alike
	// Zipf: counter number k gets 1/k of what counter number 1 gets. They have ranks by chance.
	Zipf        bool
	Groups      int // of an index that has all counters; 0: there is none
	Publishers  int
	Aggregators int
}

// A Store has the limits of the simulated database.
type Store struct {
	// Rate is how many writes a second an entity sustains. Default 1.
	Rate float64
	// Burst is how many writes at once an entity takes that was left alone before. Default 5.
	Burst float64
	// Patience is how long a write waits for its entity before the commit is aborted.
	// Default 500ms.
	Patience time.Duration
	// Latency is how long a commit takes that waits for nothing. Each entity adds PerEntity.
	// Defaults 25ms and 50µs.
	Latency, PerEntity time.Duration
}

// A Setup is one simulated run. The zero value of each setting is what countmill does by
// itself on Datastore.
type Setup struct {
	Load
	Store Store

	// Choice makes an aggregator's chooser of shards. Default: the product's policy.
	Choice Choice
	// Max is the most shards of a counter. Default 128.
	Max int
	// Gap is for how long after a raise of a record the store refuses another. Where it is set
	// shards report nothing to committers. Default 0: neither.
	Gap time.Duration
	// Reread is after how long aggregators read a counter's record again, beside the times when a
	// commit was aborted. Default 0: never.
	Reread time.Duration
	// Start is how many shards a counter begins with. Default: the policy's.
	Start int

	// PublisherLinger, Window, Commits and Entities are as in the configuration of
	// publisher and aggregator. Defaults 250ms, 100ms, 4, 400.
	PublisherLinger, Window time.Duration
	Commits, Entities       int
	// Widen is by how much a window may widen while commits are aborted more than once.
	// Default 0: not at all.
	Widen time.Duration
	// Bus is how long a message takes on average. Default 30ms.
	Bus time.Duration

	// Warmup passes before figures count, which is For long. Defaults 45s and 15s.
	Warmup, For time.Duration
	Seed        uint64
	// Limit is how long the run itself may take. Default 0: for ever.
	Limit time.Duration
}

func (s Setup) withDefaults() Setup {
	s.Publishers = cmp.Or(s.Publishers, 1)
	s.Aggregators = cmp.Or(s.Aggregators, 1)
	s.Counters = cmp.Or(s.Counters, 1)
	s.Groups = min(s.Groups, s.Counters)
	s.Store.Rate = cmp.Or(s.Store.Rate, 1)
	s.Store.Burst = cmp.Or(s.Store.Burst, 5)
	s.Store.Patience = cmp.Or(s.Store.Patience, 500*time.Millisecond)
	s.Store.Latency = cmp.Or(s.Store.Latency, 25*time.Millisecond)
	s.Store.PerEntity = cmp.Or(s.Store.PerEntity, 50*time.Microsecond)
	s.Max = cmp.Or(s.Max, 128)
	s.PublisherLinger = cmp.Or(s.PublisherLinger, 250*time.Millisecond)
	s.Window = cmp.Or(s.Window, 100*time.Millisecond)
	s.Commits = cmp.Or(s.Commits, 4)
	s.Entities = cmp.Or(s.Entities, 400)
	s.Bus = cmp.Or(s.Bus, 30*time.Millisecond)
	s.Warmup = cmp.Or(s.Warmup, 45*time.Second)
	s.For = cmp.Or(s.For, 15*time.Second)
	if s.Choice == nil {
		s.Choice = Product
	}
	return s
}

func (s *Setup) groups() groups { return groups{s.Counters, s.Groups} }

// perMessage is how many increments a message carries.
func (s *Setup) perMessage() float64 {
	return s.Increments / float64(s.Publishers) * s.PublisherLinger.Seconds()
}

// within is the chance that a message has at least one increment of a counter that this
// share of all increments goes to.
func (s *Setup) within(share float64) float64 { return 1 - math.Exp(-s.perMessage()*share) }
