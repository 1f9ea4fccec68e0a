package api

import "time"

const (
	// A speed is that of the last lookBack of busy time at most, and of half of it at least.
	lookBack = 4 * time.Second
	// A speed is known after enough busy time. It is settled after lookBack: the first batches
	// are small and meet cold caches, and would make lines look longer than they are.
	enough = lookBack / 2
)

// A speed is how many increments the sender takes in a second when it has plenty.
type speed struct {
	// Increments taken while there were plenty, and how long there were plenty. With few
	// increments to take, a sender looks slower than it is.
	taken float64
	busy  time.Duration
	last  time.Time // when busy was added to

	settled bool
}

// pass adds the time since the last call. plenty: there were plenty of increments.
func (s *speed) pass(now time.Time, plenty bool) {
	if now.Before(s.last) { // its request waited for another, which looked at the clock later
		return
	}
	if plenty {
		s.busy += now.Sub(s.last)
	}
	for s.last = now; s.busy > lookBack; s.busy /= 2 {
		s.taken /= 2
		s.settled = true
	}
}

// rate is the speed, if it is known.
func (s *speed) rate() (perSecond float64, known bool) {
	if s.busy < enough {
		return 0, false
	}
	return s.taken / s.busy.Seconds(), true
}
