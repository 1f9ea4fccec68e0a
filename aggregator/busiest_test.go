package aggregator

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/countmill/countmill/store"
)

func moves(deltas map[string]int64) (adds []store.ShardDelta) {
	for counter, delta := range deltas {
		adds = append(adds, store.ShardDelta{Counter: counter, Delta: delta})
	}
	return adds
}

// The bound of a Misra-Gries summary: a rate is never too high, and too low by at most two parts in
// busiestKept of all movement. So a counter with more than that is there.
func TestBusiestHasEveryCounterThatStandsOut(t *testing.T) {
	t.Parallel()
	var b busiest
	exact, all := map[string]float64{}, 0.0
	for commit := range 40 {
		deltas := map[string]int64{}
		for i := range 2000 { // the long tail
			deltas[fmt.Sprint("tail:", i)] = int64(1 + i%2)
		}
		for i := range 500 { // new at every commit
			deltas[fmt.Sprint("new:", commit, ":", i)] = 1
		}
		for i := range 10 {
			deltas[fmt.Sprint("middle:", i)] = 30
		}
		for i := range 20 {
			deltas[fmt.Sprint("head:", i)] += int64(400 + 10*i)
		}
		for counter, d := range deltas {
			exact[counter] += float64(d)
			all += float64(d)
		}
		b.note(moves(deltas))
	}
	if n := len(b.weights); n > busiestKept {
		t.Errorf("it remembers %d counters, want at most %d", n, busiestKept)
	}
	bound := 2 * all / (busiestKept + 1)
	for counter, w := range exact {
		if got := b.weights[counter]; got > w+1e-6 || got < w-bound {
			t.Errorf("%s has weight %.1f, want %.1f to %.1f", counter, got, w-bound, w)
		}
	}
	got := b.take(5 * time.Second)
	if len(got) > store.MaxBusiest {
		t.Errorf("take returns %d counters, want at most %d", len(got), store.MaxBusiest)
	}
	for i := range 20 {
		if want := fmt.Sprint("head:", 19-i); got[i].Counter != want {
			t.Errorf("place %d: got %s, want %s", i, got[i].Counter, want)
		}
	}
}

// A commit's sum may be wider than 64 bits.
func TestBusiestOfWideSums(t *testing.T) {
	t.Parallel()
	var b busiest
	b.note([]store.ShardDelta{{Counter: "up", Upper: 1}, {Counter: "down", Delta: 5, Upper: -1}, {Counter: "one", Delta: -1}})
	if w := b.weights; w["up"] != 1<<64 || w["down"] != 1<<64 || w["one"] != 1 {
		t.Errorf("weights are %v, want 2^64, 2^64 and 1", w)
	}
}

// Commits of different counters do not fit together: the largest stay, and none gets more than it had.
func TestBusiestOfManyCommitsIsCut(t *testing.T) {
	t.Parallel()
	var b busiest
	const each = 900
	for _, group := range []string{"a:", "b:", "c:"} {
		deltas := map[string]int64{}
		for i := range each {
			deltas[fmt.Sprint(group, i)] = int64(i + 1)
		}
		b.note(moves(deltas))
	}
	if n := len(b.weights); n > busiestKept || n < 100 {
		t.Errorf("it remembers %d counters, want at most %d", n, busiestKept)
	}
	for counter, w := range b.weights {
		var group string
		var i int
		if _, err := fmt.Sscanf(strings.Replace(counter, ":", " ", 1), "%s %d", &group, &i); err != nil {
			t.Fatal(err)
		}
		if exact := float64(i + 1); w > exact || w <= 0 {
			t.Errorf("%s has weight %v, want more than 0, at most %v", counter, w, exact)
		}
	}
	for _, largest := range []string{"a:899", "b:899", "c:899"} {
		if b.weights[largest] == 0 {
			t.Errorf("%s is forgotten, and it moved most", largest)
		}
	}
}

// After some time the rate of a steady counter is the one that it has, and a counter that stopped
// is forgotten.
func TestBusiestShowsTheRateOfNow(t *testing.T) {
	t.Parallel()
	var b busiest
	const every = 5 * time.Second
	b.note(moves(map[string]int64{"before": 1000}))
	const message = "steady in a message"
	var last []store.Busy
	for range 40 { // 200 s
		for range 5 {
			b.note(moves(map[string]int64{message[:6]: 70}))
		}
		last = b.take(every)
	}
	if len(last) != 1 || last[0].Counter != "steady" || math.Abs(last[0].Rate-70) > 0.1 {
		t.Errorf("got %v, want steady at 70 a second alone", last)
	}
	for counter := range b.weights {
		if unsafe.StringData(counter) == unsafe.StringData(message) {
			t.Errorf("%s is cut from a message, and keeps it in memory", counter)
		}
	}
}
