package clock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type key struct{}

// A pair is the same context, made by After and by context.WithTimeout.
type pair struct {
	ours, theirs           context.Context
	endOurs, endTheirs     context.CancelFunc
	childOurs, childTheirs context.Context // made on the way, or nil
	endChildren            []context.CancelFunc
}

func seen(c context.Context) string {
	if c == nil {
		return "none"
	}
	done := false
	select {
	case <-c.Done():
		done = true
	default:
	}
	return fmt.Sprint(c.Err(), " ", context.Cause(c), " ", done, " ", c.Value(key{}))
}

// In every order of events and calls, After behaves as context.WithTimeout.
func TestIsContextWithTimeout(t *testing.T) {
	t.Parallel()
	const steps = 6
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		synctest.Test(t, func(t *testing.T) {
			var trace string
			parent, endParent := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
			defer endParent(nil)
			if r.IntN(2) == 0 {
				trace += "parent's deadline; "
				var end context.CancelFunc
				parent, end = context.WithTimeout(parent, time.Duration(r.IntN(8))*time.Second)
				defer end()
			}
			d := time.Duration(r.IntN(8)-1) * time.Second
			var p pair
			p.ours, p.endOurs = Timeout(parent, d)
			p.theirs, p.endTheirs = context.WithTimeout(parent, d)
			defer p.endOurs()
			defer p.endTheirs()
			defer func() {
				for _, end := range p.endChildren {
					end()
				}
			}()
			for range steps {
				p.compare(t, r, fmt.Sprintf("seed %d: %s", seed, trace))
				trace += p.step(r, endParent)
				synctest.Wait()
			}
			p.compare(t, r, fmt.Sprintf("seed %d: %s", seed, trace))
		})
	}
}

// compare checks both after every step. Two contexts that nobody looked at may name different
// ends. It does not always call Done, because Done starts a timer.
func (p *pair) compare(t *testing.T, r *rand.Rand, trace string) {
	t.Helper()
	if a, b := p.ours.Err(), p.theirs.Err(); a != b {
		t.Fatalf("%s: %v, context.WithTimeout %v", trace, a, b)
	}
	a, aok := p.ours.Deadline()
	if b, bok := p.theirs.Deadline(); aok != bok || !a.Equal(b) {
		t.Fatalf("%s: deadline %v, context.WithTimeout %v", trace, a, b)
	}
	if r.IntN(2) == 0 {
		return
	}
	if a, b := seen(p.ours)+seen(p.childOurs), seen(p.theirs)+seen(p.childTheirs); a != b {
		t.Fatalf("%s: %s, context.WithTimeout %s", trace, a, b)
	}
}

func (p *pair) step(r *rand.Rand, endParent context.CancelCauseFunc) string {
	switch r.IntN(8) {
	case 0:
		endParent(errors.New("the parent's reason"))
		return "parent ends; "
	case 1:
		p.endOurs()
		p.endTheirs()
		return "cancelled; "
	case 2:
		if p.childOurs == nil {
			var endOurs, endTheirs context.CancelFunc
			p.childOurs, endOurs = context.WithCancel(p.ours)
			p.childTheirs, endTheirs = context.WithCancel(p.theirs)
			p.endChildren = []context.CancelFunc{endOurs, endTheirs}
		}
		return "child; "
	}
	d := time.Duration(r.IntN(3)) * time.Second
	time.Sleep(d)
	return d.String() + " pass; "
}

// Waiting callers are woken by the clock, by the parent and by cancel.
func TestWaitersAreWoken(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(parent, own context.CancelFunc){
		"time":   func(_, _ context.CancelFunc) { time.Sleep(time.Second) },
		"parent": func(parent, _ context.CancelFunc) { parent() },
		"cancel": func(_, own context.CancelFunc) { own() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				parent, endParent := context.WithCancel(t.Context())
				defer endParent()
				c, cancel := Timeout(parent, time.Second)
				defer cancel()
				woken := make(chan struct{})
				go func() { <-c.Done(); close(woken) }()
				synctest.Wait()
				end(endParent, cancel)
				<-woken // or the bubble is found to be stuck
			})
		})
	}
}

// Child contexts must not cost a goroutine each. The test runs alone, because other tests start
// goroutines.
func TestChildrenNeedNoGoroutine(t *testing.T) {
	c, cancel := Timeout(t.Context(), time.Hour)
	defer cancel()
	before := goleak.IgnoreCurrent()
	for range 10 {
		_, end := context.WithTimeout(c, time.Hour)
		defer end()
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

func TestCostsNextToNothing(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	if n := testing.AllocsPerRun(100, func() {
		c, cancel := Timeout(parent, time.Hour)
		defer cancel()
		if c.Err() != nil || c.Value(key{}) != nil {
			t.Error("it has ended, or has a value")
		}
	}); n > 2 {
		t.Errorf("%v allocations, want 2 at most", n)
	}
}

func BenchmarkTimeout(b *testing.B) {
	parent, cancel := context.WithCancel(b.Context())
	defer cancel()
	for name, with := range map[string]func(context.Context, time.Duration) (context.Context, context.CancelFunc){
		"Timeout": Timeout, "context.WithTimeout": context.WithTimeout,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, cancel := with(parent, time.Hour)
				if c.Err() != nil {
					b.Fatal("it has ended")
				}
				cancel()
			}
		})
	}
}
