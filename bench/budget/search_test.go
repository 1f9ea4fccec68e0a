package budget

import (
	"testing"
	"time"
)

// Lingers are tried in steps of a twentieth of the budget. The search follows the edge of the possible
// region in larger steps first.
const (
	grid   = 20
	coarse = 3
)

// fixed is a pair of lingers and its outcome.
type fixed struct {
	Linger, Window, P99 time.Duration
	Shards, Markers     int
}

// A searcher looks for the pair of lingers with the fewest written entities whose p99 is within the
// budget.
type searcher struct {
	t    *testing.T
	d    *deployment
	seen map[[2]int]outcome

	at   [2]int
	best outcome
	ok   bool
}

// search follows the edge of the region within the budget, because longer waits write less. Then it
// looks around the best pair until no neighbour is better.
func search(t *testing.T, d *deployment) fixed {
	t.Helper()
	s := &searcher{t: t, d: d, seen: make(map[[2]int]outcome)}
	window := grid
	for linger := 1; linger <= grid && window >= 0; linger += coarse {
		window = min(window, grid+1-linger) // the p99 of the sum of two waits is less than the sum of both p99
		for window >= 0 && !s.try(linger, window) {
			window--
		}
	}
	for before := [2]int{-1}; s.ok && before != s.at; {
		before = s.at
		for dl := -1; dl <= 1; dl++ {
			for dw := -1; dw <= 1; dw++ {
				s.try(before[0]+dl, before[1]+dw)
			}
		}
	}
	if !s.ok {
		t.Fatalf("%s: no pair of lingers is inside the budget", d)
	}
	at := s.setting(s.at)
	return fixed{at.linger, at.window, s.best.p99, s.best.shards, s.best.markers}
}

func (s *searcher) setting(at [2]int) setting {
	part := func(i int) time.Duration { return s.d.budget * time.Duration(i) / grid }
	linger, window := part(at[0]), part(at[1])
	if window == 0 {
		window = -1
	}
	return setting{linger: linger, window: window}
}

// try runs a pair, and reports whether it is within the budget.
func (s *searcher) try(linger, window int) bool {
	at := [2]int{linger, window}
	if linger < 1 || window < 0 || linger > grid || window > grid {
		return false
	}
	o, ok := s.seen[at]
	if !ok {
		o = run(s.t, s.d, s.setting(at))
		s.seen[at] = o
	}
	if o.p99 > s.d.budget {
		return false
	}
	if !s.ok || o.written() < s.best.written() {
		s.at, s.best, s.ok = at, o, true
	}
	return true
}
