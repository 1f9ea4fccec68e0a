package api

import (
	"fmt"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/fair"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/store"
)

// A resource is something of which there is only so much, and that all callers share.
type resource struct {
	name string // of the thing that is taken, in errors
	most func(c *Config) int
	keen int // that of fair.Pool: a caller that is alone has keen/(keen+1) of it, and less beside others

	// share is set for a resource that is shared elsewhere, and tested is the test of that.
	share, tested string
}

// The resources that are taken and given back here.
const (
	bodiesSent = iota
	bodiesAsked
	streams
	watched
	receipts
	scrapes
	seriesReads
	boardReads
	contents
	badges
	unread
	values
	pooledResources
)

// shared is everything that callers share, with its limit and a caller's share of it. docs/reference/limits.md has the same rows.
var shared = [...]resource{
	bodiesSent:  {name: "bytes of bodies of increments", most: func(c *Config) int { return budgetOf(c.Increments.MaxPending, c.Increments.MaxBody) }, keen: keen},
	bodiesAsked: {name: "bytes of other bodies", most: atMost(budgetOf(64<<20, httpserver.MaxBody)), keen: keen},
	streams:     {name: "watchers", most: func(c *Config) int { return c.MaxWatchers }, keen: 3},
	watched:     {name: "watched counters", most: func(c *Config) int { return c.MaxWatched }, keen: 3},
	// Each asks the store again and again.
	receipts: {name: "requests that wait for receipts", most: atMost(1000), keen: keen},
	// Each may hold some MiB.
	scrapes: {name: "answers with metrics of counters", most: atMost(4), keen: 3},
	// Each may read years.
	seriesReads: {name: "series that are being read", most: atMost(8), keen: 3},
	// Most of them take milliseconds, but all wait for the first board, and some for the next one.
	boardReads: {name: "requests that wait for boards", most: atMost(64), keen: 3},
	// Each may hold some MiB. Aggregators serve these too, and fold over the same connection to Datastore, which takes 100 calls at once.
	contents: {name: "requests for shards, journal and other records", most: atMost(16), keen: 3},
	// All strangers are one caller.
	badges: {name: "badges that are being read", most: atMost(12), keen: 2},
	unread: {name: "bytes of large answers that clients have not read", most: atMost(64 << 20), keen: 3},
	values: {name: "calls for values of sequences", most: atMost(8_000), keen: keen},

	{
		name: "calls for values of one sequence", most: atMost(2 * maxAsking), share: "500", tested: "sequences_test.go TestACallerLeavesRoomInASequence",
	},
	{
		name: "connections", most: atMost(10_000),
		share: "6,666; strangers have 2,500", tested: "../httpserver/conns_test.go TestCallersHaveAShareOfConnections",
	},
	{
		name: "increments on their way to the bus", most: func(c *Config) int { return c.Increments.MaxSending },
		share: "callers take turns; those with few pass", tested: "budget_test.go TestCallersHaveEqualShares",
	},
	{
		name: "messages on their way to the bus", most: atMost(8),
		share: "a quarter for long requests, one after the other", tested: "../../publisher/long_test.go TestLongRequestsTakeTurns",
	},
	{
		name: "keys that are read at once", most: atMost(32 << 10),
		share: "callers take turns of 1,000; four fifths of the waiting ones", tested: "../../reader/semaphore_test.go TestSemaphoreTakesTurns",
	},
	{
		name: "boards", most: atMost(32), share: "16", tested: "../../reader/boards_test.go TestACallerLeavesRoomForBoards",
	},
	{
		name: "indexes", most: atMost(store.MaxIndexes), share: "25 for the counters of a token with prefixes", tested: "../../store/index_test.go TestOwnIndexes",
	},
}

func atMost(n int) func(*Config) int { return func(*Config) int { return n } }

// keen is that of resources of which there is much.
const keen = 8

// budgetOf is most bytes, or as many as one body of maxBody needs.
func budgetOf(most, maxBody int) int { return max(most, (maxBody+1)/keen*(keen+1)+keen) }

// pools have the taken amounts of the resources.
type pools [pooledResources]*fair.Pool

func newPools(c *Config) (p pools) {
	for i := range p {
		p[i] = fair.NewPool(shared[i].most(c), shared[i].keen)
	}
	return p
}

// take takes n of a resource for a caller, who gives it back. The error matches countmill.ErrOverloaded.
func (p *pools) take(resource int, caller string, n int) (give func(), err error) {
	pool := p[resource]
	if !pool.Take(caller, n) {
		return nil, p.overfull(resource)
	}
	return func() { pool.Give(caller, n) }, nil
}

// overfull says why a caller gets no more of a resource.
func (p *pools) overfull(resource int) error {
	pool := p[resource]
	return fmt.Errorf("%w: %s: %d of %d are taken, and this caller has its share (limit: %d, less beside others)",
		countmill.ErrOverloaded, shared[resource].name, pool.Used(), pool.Most(), pool.Own())
}
