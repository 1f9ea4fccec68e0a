package sim

import (
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill/internal/clock"
)

// A storeStep is since when the store's clock was how far off.
type storeStep struct {
	at   time.Time // by clocks that are right
	skew time.Duration
}

// storeNow is the time of the store's clock. The store never gives out an earlier time than before:
// after a step back its times stay the same until the clock has caught up.
func (k *kernel) storeNow() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Add(k.jumped + k.storeSkew)
}

// taught notes that a process has read an answer with the store's time, to a call that began then
// by clocks that are right. The first answer of all teaches nothing if it took over a minute.
func (p *proc) taught(began time.Time) {
	took := p.k.wall().Sub(began)
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if p.learned || took <= time.Minute {
		p.learned, p.doubt, p.setBack, p.slept = true, min(p.doubt, took), min(p.setBack, took), min(p.slept, took)
	}
}

// suspended notes that time passed, and only wall clocks show it. If the process's wall clock was
// set back since the store's last answer, the process does not notice: that clock then shows less
// than its other one. kernel.mu is held.
func (p *proc) suspended(far time.Duration) {
	unseen := min(far, p.setBack)
	p.doubt += unseen
	p.setBack -= unseen
	p.slept += far - unseen
}

// wasSetBack notes that the process's wall clock was set back. The process does not notice a suspension
// before that either, if it looked at no clock in between. kernel.mu is held.
func (p *proc) wasSetBack(by time.Duration) {
	unseen := min(by, p.slept)
	p.doubt += unseen
	p.slept -= unseen
	p.setBack += by - unseen
}

// showed is when the store's clock showed at, by clocks that are right.
func (k *kernel) showed(at time.Time) time.Time {
	for i := len(k.steps) - 1; ; i-- {
		right := at.Add(-k.steps[i].skew)
		if i+1 < len(k.steps) && right.After(k.steps[i+1].at) {
			right = k.steps[i+1].at // skipped by the step
		}
		if i == 0 || !right.Before(k.steps[i].at) {
			return right
		}
	}
}

// newEnv is the machine of a process: its own wall clock and random numbers.
func (k *kernel) newEnv(p *proc, image uint64) *clock.Env {
	var seed [32]byte
	for i := range 4 {
		word := k.rng.Uint64()
		for j := range 8 {
			seed[8*i+j] = byte(word >> (8 * j))
		}
	}
	return &clock.Env{
		Wall:    p.wall,
		Random:  rand.NewPCG(k.seed, image),
		Entropy: rand.NewChaCha8(seed),
		Spawn:   func(f func()) { k.spawn(p, f) },
	}
}

// wall is the time of a clock that is right.
func (k *kernel) wall() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Add(k.jumped)
}

// wall is the time of the process's clock.
func (p *proc) wall() time.Time {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	return time.Now().Add(p.k.jumped + p.skew)
}

// setClocks changes what clocks show, also those of roles that look at them just then.
func (k *kernel) setClocks(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}
