package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A Result has the counts of a schedule, and its violations.
type Result struct {
	Counts
	Seed       uint64
	Violations []string
	Trace      []string // if it was asked for
}

// A kernel keeps what every part of a schedule needs: chance, time, the calls that wait for their
// turn, and the trace. It knows none of the parts.
type kernel struct {
	Result
	*plan

	rng     *rand.Rand
	verbose bool
	began   time.Time

	stormy    bool          // things break
	jumped    time.Duration // written under mu
	storeSkew time.Duration // written under mu
	stepped   time.Duration // the part of storeSkew that came while the schedule ran
	steps     []storeStep
	until     [mostFaults]time.Time
	written   []*written           // what callers may read back
	seen      map[string]time.Time // the latest moment of each counter's totals that a client has seen
	windows   []time.Duration      // all that the database's settings had, the last one in effect

	pending []*step
	ready   []*step // of the last move
	delayed []func() error
	running sync.WaitGroup // goroutines to wait for at the end

	mu      sync.Mutex
	arrived []*step
}

func newKernel(seed uint64, verbose bool, m Machine) *kernel {
	k := &kernel{seen: make(map[string]time.Time), rng: rand.New(rand.NewPCG(seed, 0x636f756e74)), verbose: verbose, began: time.Now(), stormy: true}
	k.Seed = seed
	k.plan = drawPlan(k.rng, seed, m)
	k.windows = []time.Duration{k.window1}
	if k.rates[StoreClockSkewed] > 0 && k.rng.IntN(2) == 0 {
		k.storeSkew = k.drawSkew(client).Truncate(time.Microsecond) // as the times it gives out are
		k.hit(StoreClockSkewed)
	}
	k.steps = []storeStep{{skew: k.storeSkew}}
	return k
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func (k *kernel) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	if !slices.Contains(k.Violations, v) {
		k.Violations = append(k.Violations, v)
	}
	k.say(nil, "WRONG %s", v)
}

// strikes reports whether a fault happens to the current call.
func (k *kernel) strikes(f Fault) bool {
	if !k.stormy || f < 0 || k.rates[f] == 0 || k.rng.Float64() >= k.rates[f] {
		return false
	}
	k.hit(f)
	return true
}

func (k *kernel) hit(f Fault) {
	k.Faults[f]++
	k.say(nil, "!! %s", f)
}

// away reports whether the store or the bus is unavailable since an event.
func (k *kernel) away(f Fault) bool { return k.stormy && time.Now().Before(k.until[f]) }

// refused reports whether the deployment refuses a call.
func (k *kernel) refused() bool { return k.away(FoldDeployment) || k.strikes(FoldDeployment) }

// maybe finishes a call whose caller has gone: now, later, or never.
func (k *kernel) maybe(do func() error) {
	switch k.rng.IntN(3) {
	case 0:
		_ = do()
	case 1:
		k.later(do)
	}
}

// later leaves something on its way.
func (k *kernel) later(do func() error) { k.delayed = append(k.delayed, do) }

// drawSkew is how far a clock is off. An aggregator's may be off by any time. The others
// not by more than the two hours that markers outlive the window: a request that waits in
// a publisher for longer than the window would look young where its clock is ahead.
func (k *kernel) drawSkew(r role) time.Duration {
	far := []time.Duration{time.Second, time.Minute, time.Hour}[k.rng.IntN(3)]
	if r == aggregating && k.rng.IntN(2) == 0 {
		far = 12 * time.Hour
	}
	by := time.Duration(k.rng.Int64N(int64(2*far))) - far
	if r == aggregating && k.rng.IntN(2) == 0 {
		by = -by.Abs() // the worse way to be off
	}
	return by
}

func (k *kernel) window() time.Duration { return k.windows[len(k.windows)-1] }

// pastEvent is when an event happened that a client reports late, up to just within the
// window. A later repeat may be beyond it, and is then refused.
func (k *kernel) pastEvent(at time.Time) time.Time {
	if !k.strikes(PastEvent) {
		return at
	}
	h := k.window()
	return k.wall().Add(-[]time.Duration{time.Minute, h / 3, h / 2, h - 5*time.Minute}[k.rng.IntN(4)])
}
