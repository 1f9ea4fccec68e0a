package board

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/countmill/countmill/store"
)

func TestBoardKeepsTheBest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := 1 + random.IntN(12)
		b := NewBuilder(store.SumsQuery{}, false, size)
		var all []Ranked
		for i := range random.IntN(40) {
			c := Ranked{fmt.Sprintf("c%02d", i), random.Int64N(12) - 6}
			all = append(all, c)
			b.Add(&store.CounterSum{Counter: []byte(c.Counter), Sum: c.Sum, Most: c.Sum})
		}
		got := b.Board(store.Sums{})
		slices.SortFunc(all, Compare)
		best := all[:min(size, len(all))]
		var names []Ranked
		for i, c := range got.Candidates {
			names = append(names, c.Ranked)
			if c.Rest != c.Sum {
				t.Errorf("seed %d: candidate %d has %d, and the rest %d", seed, i, c.Sum, c.Rest)
			}
		}
		floor := int64(math.MinInt64)
		if len(all) > size {
			floor = all[size].Sum
		}
		if !slices.Equal(names, best) || got.Floor != floor || got.All() != (len(all) <= size) || got.Counters() != len(all) {
			t.Errorf("seed %d: candidates %v, floor %d, all %t; want %v and %d", seed, names, got.Floor, got.All(), best, floor)
		}
		for _, c := range all {
			want := slices.IndexFunc(all, func(o Ranked) bool { return o.Sum == c.Sum })
			if above := got.Above(c.Counter, c.Sum); above != want {
				t.Errorf("seed %d: %d are above %v, want %d", seed, above, c, want)
			}
		}
	}
}

func TestFloor(t *testing.T) {
	t.Parallel()
	window := store.SumsQuery{To: 60}
	for name, tt := range map[string]struct {
		query store.SumsQuery
		add   []store.CounterSum
		want  int64
	}{
		"none":                         {add: []store.CounterSum{{Sum: 5, Most: 5}}, want: math.MinInt64},
		"one that overflowed":          {add: []store.CounterSum{{Overflow: true}}, want: math.MaxInt64},
		"a hidden one":                 {query: window, add: []store.CounterSum{{Sum: 9, Most: 9, Hidden: true}}, want: 9},
		"a window with nothing in it":  {query: window, add: []store.CounterSum{{Sum: 0, Most: 4}}, want: 4},
		"a total of 0":                 {add: []store.CounterSum{{}}, want: math.MinInt64},
		"a worse one that can be more": {query: window, add: []store.CounterSum{{Sum: 5, Most: 5}, {Sum: 3, Most: 8}}, want: 8},
		"one that was pushed out":      {query: window, add: []store.CounterSum{{Sum: 3, Most: 8}, {Sum: 5, Most: 5}}, want: 8},
	} {
		b := NewBuilder(tt.query, false, 1)
		for i := range tt.add {
			tt.add[i].Counter = fmt.Appendf(nil, "c%d", i)
			b.Add(&tt.add[i])
		}
		if got := b.Board(store.Sums{}).Floor; got != tt.want {
			t.Errorf("%s: floor %d, want %d", name, got, tt.want)
		}
	}
}

func TestProves(t *testing.T) {
	t.Parallel()
	const full, short = true, false
	quiet, rose := store.Rise{Known: true}, store.Rise{Known: true, Most: 10, Changed: true}
	some, all := &Board{Floor: 5, sums: []int64{5, 7}, Candidates: make([]Candidate, 1)}, &Board{Floor: math.MinInt64, sums: []int64{7}, Candidates: make([]Candidate, 1)}
	sliding := &Board{Floor: 5, Slides: true}
	for name, tt := range map[string]struct {
		board *Board
		last  int64
		full  bool
		rise  store.Rise
		want  bool
	}{
		"nothing changed":                        {some, 5, full, quiet, true},
		"nothing changed, and some are missing":  {some, 5, short, quiet, false},
		"nothing changed, and all are there":     {all, 7, short, quiet, true},
		"time has passed":                        {sliding, 5, full, quiet, false},
		"time has passed, above the floor":       {sliding, 6, full, quiet, true},
		"above what another one can have":        {some, 16, full, rose, true},
		"what another one can have":              {some, 15, full, rose, false},
		"above what a new one can have":          {all, 11, full, rose, true},
		"what a new one can have":                {all, 10, full, rose, false},
		"there can be a new one":                 {all, 11, short, rose, false},
		"a negative floor":                       {&Board{Floor: -9}, 10, full, rose, false},
		"others fold too":                        {all, math.MaxInt64, full, store.Rise{Changed: true}, false},
		"the rise has no bound":                  {some, math.MaxInt64, full, store.Rise{Known: true, Most: math.MaxInt64, Changed: true}, false},
		"one had overflowed":                     {&Board{Floor: math.MaxInt64}, math.MaxInt64, full, rose, false},
		"one had overflowed and nothing changed": {&Board{Floor: math.MaxInt64}, 3, full, quiet, true},
	} {
		if got := tt.board.Proves(tt.last, tt.full, tt.rise); got != tt.want {
			t.Errorf("%s: Proves(%d, %t, %+v) is %t", name, tt.last, tt.full, tt.rise, got)
		}
	}
}
