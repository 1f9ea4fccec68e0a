package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Every difference between a total and the ledger is drift, of the right kind.
func TestDrift(t *testing.T) {
	t.Parallel()
	const must, may = 0b0011, 0b0100 // increments 0 and 1 were acknowledged, 2 is unknown, 3 was never sent
	for name, tt := range map[string]struct {
		total int64
		want  drift
	}{
		"acknowledged":        {1 + 4, drift{}},
		"unknown and counted": {1 + 4 + 16, drift{unknownCounted: 1}},
		"lost":                {4, drift{lost: 1}},
		"all lost":            {0, drift{lost: 2}},
		"twice":               {1 + 2*4, drift{doubled: 1}},
		"three times":         {3 + 4, drift{doubled: 2}},
		"unknown and twice":   {1 + 4 + 2*16, drift{doubled: 1}},
		"never sent":          {1 + 4 + 64, drift{foreign: 1}},
		"beyond all places":   {1 + 4 + 1<<60, drift{foreign: 1}},
		"negative":            {-1, drift{foreign: 1}},
	} {
		var got drift
		got.place(verdict{"a", must, may}, tt.total)
		if got.none() != (got.example == "") {
			t.Errorf("%s: drift none: %v, example %q", name, got.none(), got.example)
		}
		got.example = ""
		tt.want.counters, tt.want.acked, tt.want.unknown = 1, 2, 1
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
	for total, want := range map[int64]drift{9: {lost: 1}, 10: {}, 12: {}, 15: {doubled: 3}} {
		var got drift
		got.sum("a", sum{acked: 10, sent: 12}, total)
		if got.lost != want.lost || got.doubled != want.doubled {
			t.Errorf("total %d, 10 acknowledged of 12: got %+v, want %+v", total, got, want)
		}
	}
}

// Hot counters have no history. Their totals must be between the acknowledged sum before the call and
// the sent sum before the answer.
func TestLedgerHoldsHotCounters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		total int64 // of each hot counter, beyond its present sum
		want  string
	}{"right": {0, ""}, "more than was sent": {1, "were sent"}, "less than was acknowledged": {-1, "before"}} {
		l := newLedger("test", true)
		q := l.draw(rand.New(rand.NewPCG(1, 2)), "a")
		l.settle(q, true)
		ask := l.askFor(nil)
		a := answer{}
		for i := range l.hot {
			a.Totals = append(a.Totals, answerTotal{Counter: l.hotName(i), Total: q.hot[i] + tt.total})
		}
		l.answered(ask, a)
		if err := l.problems(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}
