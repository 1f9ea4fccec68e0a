package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Correct histories pass, and each kind of error is found.
func TestHistoryCheck(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	a := func(call, acked int) add {
		if acked == 0 {
			return add{time.Duration(call) * time.Second, never, true}
		}
		return add{time.Duration(call) * time.Second, time.Duration(acked) * time.Second, true}
	}
	r := func(call, ret int, asOf time.Time, total int64) read {
		return read{call: time.Duration(call) * time.Second, ret: time.Duration(ret) * time.Second, asOf: asOf, total: total}
	}
	stale := func(call, staleness int, asOf time.Time, total int64) read {
		return read{time.Duration(call) * time.Second, time.Duration(call+1) * time.Second, time.Duration(staleness) * time.Second, asOf, total}
	}
	for name, tt := range map[string]struct {
		adds        []add
		reads       []read
		up, apart   string // a part of the error; "" if there is none
		showProblem string // an error that the read itself shows
	}{
		"read after":                 {adds: []add{a(1, 2), a(1, 3)}, reads: []read{r(4, 5, at(4), 1+4)}},
		"read between":               {adds: []add{a(1, 5), a(1, 5)}, reads: []read{r(2, 3, at(2), 4), r(6, 7, at(6), 5)}},
		"answered and not there":     {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), 0)}, up: "must come after"},
		"unknown and never there":    {adds: []add{a(1, 0), a(1, 2)}, reads: []read{r(3, 4, at(3), 4), r(5, 6, at(5), 4)}},
		"unknown and there later":    {adds: []add{a(1, 0), a(1, 2)}, reads: []read{r(3, 4, at(3), 4), r(5, 6, at(5), 5)}},
		"there before it was sent":   {adds: []add{a(8, 9)}, reads: []read{r(3, 4, at(3), 1)}, up: "must come after", apart: "must come after"},
		"back":                       {adds: []add{a(1, 9)}, reads: []read{r(2, 3, at(2), 1), r(4, 5, at(4), 0)}, up: "lacks", apart: "lacks"},
		"forked":                     {adds: []add{a(1, 9), a(1, 9)}, reads: []read{r(2, 5, at(2), 1), r(2, 5, at(3), 4)}, up: "lacks", apart: "lacks"},
		"forked, whatever as_of":     {adds: []add{a(1, 9), a(1, 9)}, reads: []read{r(2, 5, at(3), 1), r(2, 5, at(3), 4)}, up: "no order", apart: "no order"},
		"order of answered":          {adds: []add{a(1, 2), a(4, 9)}, reads: []read{r(1, 8, at(5), 4)}, up: "must come after"},
		"as old as permitted":        {adds: []add{a(1, 2)}, reads: []read{stale(5, 4, at(1), 0), stale(5, 4, at(3), 1)}},
		"older than permitted":       {adds: []add{a(1, 2)}, reads: []read{stale(5, 2, at(4), 0)}, up: "must come after"},
		"as_of older than permitted": {adds: []add{a(1, 9)}, reads: []read{stale(5, 2, at(2), 0)}, up: "at most", apart: "at most"},
		"counted twice":              {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), 2)}, showProblem: "2 times"},
		"never sent":                 {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), 1+4)}, showProblem: "nobody sent"},
		"negative":                   {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), -1)}, showProblem: "nobody sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{counter: "a", adds: tt.adds}
			for _, r := range tt.reads {
				says(t, "show", h.show(r), tt.showProblem)
			}
			if tt.showProblem == "" {
				says(t, "where 202 means counted", h.check(true, 0), tt.up)
				says(t, "where 202 means safe", h.check(false, 0), tt.apart)
			}
		})
	}
}

// Totals need the right order only if they are more than apart from each other.
func TestHistoryOrderApart(t *testing.T) {
	t.Parallel()
	h := &history{counter: "a", adds: []add{{call: 1, acked: 2, done: true}}}
	for _, r := range []read{
		{call: 3, ret: 9, asOf: epoch.Add(time.Second), total: 1},
		{call: 3, ret: 9, asOf: epoch.Add(time.Second + 10*time.Millisecond), total: 0},
	} {
		says(t, "show", h.show(r), "")
	}
	says(t, "10ms apart, 20ms allowed", h.check(false, 20*time.Millisecond), "")
	says(t, "10ms apart, 5ms allowed", h.check(false, 5*time.Millisecond), "lacks")
}

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want %q", what, err, want)
	}
}

// model describes a counter to Porcupine. An input is a power of 4 to add, or 0 for a read.
var model = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		if n := input.(int64); n > 0 {
			return true, state.(int64) + n
		}
		return state == output, state
	},
}

// The check agrees with Porcupine, which tries every order and does not know the structure of totals.
// Porcupine takes minutes if twenty increments are on a bus, so the histories here are short. Half of
// them are drawn from a correct order, and half of those are then falsified.
func TestHistoryCheckAgreesWithPorcupine(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var right, wrong int
	for range 20_000 {
		h, counted := drawn(r), r.IntN(2) == 0
		var ops []porcupine.Operation
		for i, a := range h.adds {
			to := never
			if counted {
				to = a.acked
			}
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: int64(1) << (2 * i), Call: int64(a.call), Return: int64(to)})
		}
		for _, r := range h.reads {
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: int64(0), Output: r.total, Call: int64(r.call - r.staleness), Return: int64(r.ret)})
		}
		err := h.linearizable(counted)
		if want := porcupine.CheckOperations(model, ops); want != (err == nil) {
			t.Fatalf("Porcupine says %v, the check %v: counted %v, adds %+v, reads %v", want, err, counted, h.adds, h.reads)
		}
		if err == nil {
			right++
		} else {
			wrong++
		}
	}
	if t.Logf("%d right, %d wrong", right, wrong); right < 2000 || wrong < 2000 {
		t.Error("too few of one kind to show anything")
	}
}

// drawn returns a history of at most 6 adds and 6 reads.
func drawn(r *rand.Rand) *history {
	h := &history{counter: "a"}
	lies := r.IntN(2) == 0
	before := func(n int) time.Duration { return time.Duration(max(0, n-r.IntN(8))) }
	after := func(n int) time.Duration { return time.Duration(n + r.IntN(8)) }
	var total int64
	at := 0
	for range 1 + r.IntN(12) {
		at += 1 + r.IntN(6)
		if r.IntN(2) == 0 && len(h.adds) < 6 {
			a := add{call: before(at), acked: after(at)}
			if r.IntN(4) == 0 {
				a.acked = never
			}
			total += 1 << (2 * len(h.adds))
			h.adds = append(h.adds, a)
			continue
		}
		shown := total
		if lies && len(h.adds) > 0 {
			shown ^= 1 << (2 * r.IntN(len(h.adds)))
		}
		h.reads = append(h.reads, read{call: before(at), ret: after(at), staleness: time.Duration(r.IntN(4)), total: shown})
	}
	return h
}
