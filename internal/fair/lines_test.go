package fair

import (
	"slices"
	"testing"
	"time"
)

// Lines take turns: a caller with large ones gets no more than others, and waiters that leave leave nothing.
func TestLines(t *testing.T) {
	t.Parallel()
	var ls Lines
	of := make(map[*Waiter]string)
	join := func(caller string, cost, n int) {
		for range n {
			of[ls.Join(caller, time.Time{}, cost, 10)] = caller
		}
	}
	join("large", 30, 4)
	join("small", 1, 50)
	join("gone", 5, 1)
	for w, caller := range of {
		if caller == "gone" && (!ls.Leave(w) || ls.Leave(w)) {
			t.Error("a waiter left twice, or not at all")
		}
	}
	if ls.Held() != 170 || ls.Of("large") != 120 || ls.Of("gone") != 0 || ls.Callers() != 2 {
		t.Errorf("%d wait, %d of them large, of %d callers", ls.Held(), ls.Of("large"), ls.Callers())
	}
	var turns []string
	for !ls.Empty() {
		w := ls.Next(10)
		if ls.Leave(w) {
			t.Error("a waiter left after its turn")
		}
		turns = append(turns, of[w])
	}
	if len(turns) != 54 || turns[0] != "large" {
		t.Fatalf("the turns are %v", turns)
	}
	for n := range 3 { // 30 of the one, and 30 of the other
		next := slices.Index(turns[1:], "large")
		if turns = turns[1:]; next < 20 && n < 1 || next > 40 {
			t.Errorf("after large one %d the next comes after %d small ones, want about 30", n, next)
		}
		turns = turns[max(next, 0):]
	}
	if ls.Held() != 0 || ls.Callers() != 0 {
		t.Errorf("%d are left", ls.Held())
	}
}

// In a line the oldest is first, and those of one age are in the order in which they came.
func TestTheOldestOfALineIsFirst(t *testing.T) {
	t.Parallel()
	var ls Lines
	began := time.Now()
	var want, got []*Waiter
	for _, age := range []int{3, 5, 3, 9, 1, 5} {
		want = append(want, ls.Join("a", began.Add(-time.Duration(age)*time.Second), 1, 10))
	}
	for !ls.Empty() {
		got = append(got, ls.Next(10))
	}
	if !slices.Equal(got, []*Waiter{want[3], want[1], want[5], want[0], want[2], want[4]}) {
		t.Errorf("got %v of %v", got, want)
	}
}
