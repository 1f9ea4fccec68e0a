package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// RunSums runs the tests of store.Boards alone, for a store that has several ways to look at all sums.
func RunSums(t *testing.T, open func(t *testing.T) store.Store) {
	su := &suite{open: open, rounds: 200}
	for _, test := range sumsTests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, su)
		})
	}
}

type suiteTest struct {
	name string
	run  func(t *testing.T, su *suite)
}

var sumsTests = []suiteTest{
	{"SumsAreTotals", testSumsAreTotals},
	{"SumsOfGroups", testSumsOfGroups},
	{"SumsOfMinutes", testSumsOfMinutes},
	{"SumsAreOfOneMoment", testSumsAreOfOneMoment},
	{"SumsEndWithTheirVisitor", testSumsEndWithTheirVisitor},
	{"RisenBounds", testRisenBounds},
	{"RisenBesideFolds", testRisenBesideFolds},
	{"RisenSeesMinutes", testRisenSeesMinutes},
}

// sites is the index of these tests. Its number is in Grouped alone.
func sites() *store.Index {
	x, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
	if err != nil {
		panic(err)
	}
	x.Number = 7
	return &x
}

// pagesOf are counters of the index, and strangers are not.
func pagesOf(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("page:s%d:/%d", i%5, i))
	}
	return append(names, "page:s1:", "page::x:y", "page:日本:語", "page:s\u00e9:a b")
}

var strangers = []string{"page", "page:", "page:a", "pagf:s1:/1", "pag", "=site:s1", "a:page:s1:/1"}

// groupedCommit adds deltas, and says which of them the index has.
func groupedCommit(x *store.Index, adds ...store.ShardDelta) *store.Commit {
	c := commit(one(marker()), adds...)
	for i := range c.Adds {
		if x.Has(c.Adds[i].Counter) {
			c.Grouped = append(c.Grouped, store.Grouping{Add: i, Indexes: []int64{x.Number}})
		}
	}
	return c
}

// sumsOf returns all sums of a query by counter.
func sumsOf(t testing.TB, s store.Store, q *store.SumsQuery) (map[string]int64, store.Sums) {
	t.Helper()
	found := make(map[string]int64)
	sums, err := s.Sums(t.Context(), q, func(c *store.CounterSum) error {
		name := string(c.Counter)
		if _, twice := found[name]; twice {
			t.Errorf("%q is visited twice", name)
		}
		if c.Overflow {
			return nil
		}
		if c.Most < c.Sum || q.To == 0 && c.Most != c.Sum {
			t.Errorf("%q has the sum %d, and the most is %d", name, c.Sum, c.Most)
		}
		found[name] = c.Sum
		return nil
	})
	if errors.Is(err, store.ErrNoWindows) {
		t.Skip("the store has no sums of minutes")
	}
	if err != nil {
		t.Fatalf("Sums: %v", err)
	}
	return found, sums
}

// totalsOf are the totals of existing counters, as a reader has them.
func totalsOf(t testing.TB, s store.Store, names []string) map[string]int64 {
	t.Helper()
	found := make(map[string]int64)
	for _, name := range names {
		sum := look(t, s, name)
		total := sum.Sum - sum.Baseline
		if sum.Exists && (total != 0 || sum.DeletedAt.IsZero()) {
			found[name] = total
		}
	}
	return found
}

// A churn changes counters at random.
type churn struct {
	t      testing.TB
	s      store.Store
	x      *store.Index
	random *rand.Rand
	names  []string
	looked []store.ResetRequest // looks of resets that come later
}

func newChurn(t testing.TB, s store.Store, names []string) *churn {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for lot := range slices.Chunk(names, 20) {
		var growths []store.Growth
		for _, name := range lot {
			growths = append(growths, store.Growth{Counter: name, Shards: 1 + len(name)%3})
		}
		grow(t, s, growths...)
	}
	return &churn{t: t, s: s, x: sites(), names: names, random: rand.New(rand.NewPCG(seed, 1))}
}

func (c *churn) name() string { return c.names[c.random.IntN(len(c.names))] }

func (c *churn) fold() {
	var adds []store.ShardDelta
	for range 1 + c.random.IntN(8) {
		name := c.name()
		adds = append(adds, add(name, c.random.IntN(1+len(name)%3), 1+c.random.Int64N(50)-c.random.Int64N(60)))
	}
	slices.SortFunc(adds, func(a, b store.ShardDelta) int { return gocmpAdds(a, b) })
	adds = slices.CompactFunc(adds, func(a, b store.ShardDelta) bool { return a.Counter == b.Counter && a.Shard == b.Shard })
	adds = slices.DeleteFunc(adds, func(a store.ShardDelta) bool { return a.Delta == 0 })
	if len(adds) > 0 {
		mustFoldRetrying(c.t, c.s, groupedCommit(c.x, adds...))
	}
}

func gocmpAdds(a, b store.ShardDelta) int {
	if a.Counter != b.Counter {
		if a.Counter < b.Counter {
			return -1
		}
		return 1
	}
	return a.Shard - b.Shard
}

// step folds, looks for a reset, applies a reset, deletes, or makes a deleted counter exist again.
func (c *churn) step() {
	switch c.random.IntN(12) {
	case 0, 1:
		name := c.name()
		r := resetOf(name, look(c.t, c.s, name))
		r.Delete = c.random.IntN(3) == 0
		c.looked = append(c.looked, r)
	case 2, 3:
		if len(c.looked) > 0 { // its look-up may be long before
			_, err := c.s.ResetCounter(c.t.Context(), c.looked[0])
			if err != nil && !errors.Is(err, store.ErrChanged) {
				c.t.Errorf("ResetCounter: %v", err)
			}
			c.looked = c.looked[1:]
		}
	case 4:
		if _, err := c.s.GrowCounter(c.t.Context(), c.name(), 1); err != nil {
			c.t.Errorf("GrowCounter: %v", err)
		}
	default:
		c.fold()
	}
}

func testSumsAreTotals(t *testing.T, su *suite) {
	s := su.open(t)
	names := append(pagesOf(60), strangers...)
	c := newChurn(t, s, names)
	q := &store.SumsQuery{Index: sites()}
	if got, _ := sumsOf(t, s, q); len(got) != 0 {
		t.Errorf("counters that were never incremented: %v", got)
	}
	for range 4 {
		for range su.rounds {
			c.step()
		}
		want := totalsOf(t, s, pagesOf(60))
		got, sums := sumsOf(t, s, q)
		for name := range want { // those that were only grown have no shard
			if _, ok := got[name]; !ok && want[name] == 0 {
				delete(want, name)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("sums (-totals +sums):\n%s", diff)
		}
		if sums.At.IsZero() || sums.Read < int64(len(got)) {
			t.Errorf("%d sums at %s, %d entities read", len(got), sums.At, sums.Read)
		}
	}
	for range 3 { // beyond int64
		mustFoldRetrying(t, s, groupedCommit(sites(), add("page:s1:/1", 0, wire.MaxSum)))
	}
	if got, _ := sumsOf(t, s, q); got["page:s1:/1"] != 0 {
		t.Errorf("a counter that overflowed has the sum %d", got["page:s1:/1"])
	}
}

func testSumsOfGroups(t *testing.T, su *suite) {
	s, x := su.open(t), sites()
	if s.Limits().Rests == 0 {
		t.Skip("the store has no indexes")
	}
	grow(t, s, store.Growth{Counter: "=site:a", Shards: 2}, store.Growth{Counter: "=site:b", Shards: 1}, store.Growth{Counter: "=sites", Shards: 1})
	mustFold(t, s, commit(nil, add("=site:a", 0, 5), add("=site:a", 1, -7), add("=site:b", 0, 3), add("=sites", 0, 100)))
	p := store.Piece{Index: x.Number, ID: 1, To: 1<<64 - 1}
	if err := s.SwapPieces(t.Context(), nil, []store.Piece{p}); err != nil {
		t.Fatal(err)
	}
	q := &store.SumsQuery{Index: x, Groups: true}
	_, before := sumsOf(t, s, q)
	rests := []store.GroupRest{{Group: "=site:b", Rest: 40}, {Group: "=site:c", Rest: 8}, {Group: x.Overflow(), Rest: -1}}
	if err := s.SetRests(t.Context(), &p, rests); err != nil {
		t.Fatal(err)
	}
	got, _ := sumsOf(t, s, q)
	if diff := gocmp.Diff(map[string]int64{"=site:a": -2, "=site:b": 43, "=site:c": 8, x.Overflow(): -1}, got); diff != "" {
		t.Errorf("sums of groups (-want +got):\n%s", diff)
	}
	if r := s.Risen(q, before.Mark); r.Known && (r.Most < 40 || !r.Changed) {
		t.Errorf("a group got 40 from a piece, and Risen answers %+v", r)
	}
}

func testSumsOfMinutes(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	day := today(t, s)
	names := pagesOf(12)
	newChurn(t, s, names) // makes their records
	random := rand.New(rand.NewPCG(1, 2))
	for range su.rounds / 5 {
		var deltas []bucketed
		for _, name := range names[:1+random.IntN(len(names))] {
			for _, m := range []wire.Minute{day - 1, day, day + 3} {
				if random.IntN(2) == 0 {
					deltas = append(deltas, bucketed{name, 0, m, 1 + random.Int64N(9) - 12*random.Int64N(2)})
				}
			}
		}
		deltas = slices.DeleteFunc(deltas, func(d bucketed) bool { return d.delta == 0 })
		if len(deltas) > 0 {
			mustFoldRetrying(t, s, seriesCommit(one(marker()), deltas...))
		}
	}
	for _, window := range [][2]wire.Minute{{day - 1, day}, {day, day + 1}, {day - store.DayMinutes, day + store.DayMinutes}, {day, allTime}} {
		got, _ := sumsOf(t, s, &store.SumsQuery{Index: sites(), From: window[0], To: window[1]})
		want := make(map[string]int64)
		v := s.View()
		for _, name := range names {
			for _, b := range seriesIn(t, v, name, window[0], window[1]) {
				want[name] += b.Sum
			}
		}
		v.Close()
		for name, n := range want {
			if _, ok := got[name]; n == 0 && !ok {
				delete(want, name)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("sums of the minutes from %d to %d (-want +got):\n%s", window[0], window[1], diff)
		}
	}
}

// Folds move amounts between counters: the sum of all sums is 0 at every moment.
func testSumsAreOfOneMoment(t *testing.T, su *suite) {
	s := su.open(t)
	names := pagesOf(30)
	c := newChurn(t, s, names)
	var folds sync.WaitGroup
	folds.Go(func() {
		for i := range su.rounds {
			mustFoldRetrying(t, s, groupedCommit(c.x, add(names[i%30], 0, 5), add(names[(i+7)%30], 0, -5)))
		}
	})
	for range 10 {
		got, sums := sumsOf(t, s, &store.SumsQuery{Index: c.x})
		total := int64(0)
		for _, n := range got {
			total += n
		}
		if total != 0 && su.settle == 0 {
			t.Errorf("all sums at %s together are %d, want 0", sums.At, total)
		}
	}
	folds.Wait()
}

func testSumsEndWithTheirVisitor(t *testing.T, su *suite) {
	s := su.open(t)
	c := newChurn(t, s, pagesOf(10))
	mustFoldRetrying(t, s, groupedCommit(c.x, add("page:s1:/1", 0, 1), add("page:s2:/2", 0, 1)))
	enough, n := errors.New("enough"), 0
	_, err := s.Sums(t.Context(), &store.SumsQuery{Index: c.x}, func(*store.CounterSum) error {
		n++
		return enough
	})
	if n != 1 || err == nil {
		t.Errorf("visited %d counters, and the error is %v", n, err)
	}
}

// Between a moment of Sums and a later view no sum has risen by more than Risen says.
func testRisenBounds(t *testing.T, su *suite) {
	s := su.open(t)
	names := pagesOf(20)
	c, q := newChurn(t, s, names), &store.SumsQuery{Index: sites()}
	if !s.Risen(q, store.RiseMark{}).Known {
		t.Skip("other processes may fold too")
	}
	for range su.rounds {
		for range c.random.IntN(4) {
			c.step()
		}
		before, sums := sumsOf(t, s, q)
		for range c.random.IntN(4) {
			c.step()
		}
		after := totalsOf(t, s, names)
		rise := s.Risen(q, sums.Mark)
		for name, total := range after {
			if total-before[name] > rise.Most {
				t.Fatalf("%q rose from %d to %d, and Risen answers %+v", name, before[name], total, rise)
			}
			if was, ok := before[name]; !rise.Changed && ok && was != total {
				t.Fatalf("%q changed from %d to %d, and Risen answers %+v", name, was, total, rise)
			}
		}
		if again := s.Risen(q, sums.Mark); again != rise {
			t.Fatalf("nothing happened, and Risen answers %+v after %+v", again, rise)
		}
	}
}

// +5 in one minute and -5 in another leave a total as it is, and raise a window.
func testRisenSeesMinutes(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	q := &store.SumsQuery{Index: sites()}
	if !s.Risen(q, store.RiseMark{}).Known {
		t.Skip("other processes may fold too")
	}
	day := today(t, s)
	_, sums := sumsOf(t, s, q)
	mustFoldRetrying(t, s, seriesCommit(one(marker()), bucketed{"page:s1:/1", 0, day - 1, -5}, bucketed{"page:s1:/1", 0, day, 5}))
	if r := s.Risen(q, sums.Mark); r.Most < 5 || !r.Changed {
		t.Errorf("a day rose by 5, and Risen answers %+v", r)
	}
}

// The bound holds while others fold.
func testRisenBesideFolds(t *testing.T, su *suite) {
	s := su.open(t)
	names := pagesOf(8)
	c, q := newChurn(t, s, names), &store.SumsQuery{Index: sites()}
	if !s.Risen(q, store.RiseMark{}).Known {
		t.Skip("other processes may fold too")
	}
	stop := make(chan struct{})
	var folds sync.WaitGroup
	for n := range 3 {
		folds.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				com := groupedCommit(c.x, add(names[(i*5+n)%len(names)], 0, int64(1+i%7)))
				if n == 0 {
					com.Markers = nil
				}
				mustFoldRetrying(t, s, com)
			}
		})
	}
	for range su.rounds {
		before, sums := sumsOf(t, s, q)
		after := totalsIn(t, s, names)
		rise := s.Risen(q, sums.Mark)
		risen := int64(0) // by all counters together, because all deltas are positive
		for name, total := range after {
			risen += total - before[name]
		}
		if risen > rise.Most || !rise.Changed && risen != 0 {
			t.Errorf("all sums rose by %d together, and Risen answers %+v", risen, rise)
		}
	}
	close(stop)
	folds.Wait()
}

// totalsIn reads shard 0 of counters that were never reset, in one view.
func totalsIn(t testing.TB, s store.Store, names []string) map[string]int64 {
	t.Helper()
	v := s.View()
	defer v.Close()
	var keys []store.Key
	for _, name := range names {
		keys = append(keys, store.Key{Counter: name})
	}
	found := make(map[string]int64)
	for i, value := range lookup(t, v, keys...) {
		found[names[i]] = value.Value
	}
	return found
}
