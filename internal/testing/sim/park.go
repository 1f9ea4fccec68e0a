package sim

import (
	"cmp"
	"context"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
)

// A callEnd is how a parked call ends.
type callEnd int

const (
	released callEnd = iota // it is its turn
	ended                   // its context ended
	killed                  // its process was killed while it was under way
)

// A step is a goroutine that waits for its turn.
type step struct {
	p          *proc
	op         string
	key        uint64 // of its arguments: sorts steps that wait together
	on         int    // the op that asks, 0 for none
	n          int    // distinguishes steps that are equal in all of that
	ctx        context.Context
	at         time.Time     // when it came
	jumped     time.Duration // kernel.jumped then
	came       int           // when it came, in steps of the schedule
	asks, gets text          // its arguments and its answer, in words; may be nil
	// run makes the call, in the simulator's goroutine. nil for a first step.
	run    func(callEnd)
	commit *store.Commit // that a fold asks for; until it is answered
	resume chan struct{}
	fenced bool
	aside  bool // of the cache: no call of the bus or the store
	slow   bool // answered when its context has ended, not before
	frozen bool // while its machine was suspended
}

// opKey is where the context of a call has the number of the op that made it.
type opKey struct{}

// park waits for the caller's turn and returns false if its process is dead by then.
func (k *kernel) park(s *step) bool {
	s.resume, s.at = make(chan struct{}), time.Now()
	if s.ctx != nil {
		s.on, _ = s.ctx.Value(opKey{}).(int)
	}
	k.mu.Lock()
	if s.p.dead {
		k.mu.Unlock()
		return false
	}
	if s.n == 0 {
		s.p.calls++
		s.n = s.p.calls
	}
	s.jumped = k.jumped
	k.arrived = append(k.arrived, s)
	k.mu.Unlock()
	<-s.resume
	k.mu.Lock()
	defer k.mu.Unlock()
	return !s.fenced && !s.p.dead
}

// goesRound is how many calls show that a dead process tries the same for ever. From then on it waits
// between two, or nothing else would have any time.
const goesRound = 100_000

// spawn starts a goroutine whose first step parks.
func (k *kernel) spawn(p *proc, f func()) {
	k.mu.Lock()
	p.calls++
	n := p.calls
	k.mu.Unlock()
	op := "go " + funcName(f)
	go func() {
		deepen(0)
		if !k.park(&step{p: p, op: op, n: n}) && n > goesRound {
			<-time.After(time.Second)
		}
		f()
	}()
}

// deepen makes a goroutine's stack as large as most need at once, while there is little to copy.
//
//go:noinline
func deepen(n int) byte {
	var room [3 << 10]byte
	return room[n]
}

// funcName returns the short name of the function that a goroutine runs. It orders goroutines of one
// process that start at the same moment.
func funcName(f func()) string {
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	name = name[strings.LastIndexByte(name, '/')+1:]
	return strings.TrimSuffix(name, "-fm")
}

func compareSteps(a, b *step) int {
	if a.p.n != b.p.n {
		return cmp.Compare(a.p.n, b.p.n)
	}
	return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.key, b.key), cmp.Compare(a.on, b.on), cmp.Compare(a.n, b.n))
}

// arrivals takes in the goroutines that wait since the last step.
func (w *World) arrivals() {
	w.mu.Lock()
	arrived := w.arrived
	w.arrived = nil
	w.mu.Unlock()
	if len(arrived) == 0 {
		return
	}
	slices.SortFunc(arrived, compareSteps) // several may come at one moment, in any order
	for _, s := range arrived {
		at, _ := slices.BinarySearchFunc(w.pending, s, compareSteps)
		w.pending = slices.Insert(w.pending, at, s)
		s.came = w.Steps
		w.callBegins(s)
	}
}

// ready reports whether a step may have its turn.
func (s *step) ready() bool {
	if s.p.frozen {
		return false
	}
	return !s.slow || s.ctx.Err() != nil
}

// release gives a step its turn.
func (w *World) release(s *step) {
	w.drop(s)
	s.p.stirred = true
	f := released
	if s.ctx != nil && s.ctx.Err() != nil {
		f = ended
	}
	switch f {
	case released:
		w.say(s.p, "%s", w.words(s.op, s.asks))
	default:
		w.say(s.p, "%s: its time is up", w.words(s.op, s.asks))
	}
	callEnds(s)
	if s.run != nil {
		if !s.aside {
			w.Calls++
		}
		s.run(f)
		w.say(s.p, "   -> %s", w.words("", s.gets))
	}
	close(s.resume)
}

func (k *kernel) drop(s *step) {
	at := slices.Index(k.pending, s)
	k.pending = slices.Delete(k.pending, at, at+1)
}
