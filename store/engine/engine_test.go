package engine_test

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

func bigOf(a engine.Int) *big.Int {
	n, _ := new(big.Int).SetString(a.String(), 10)
	return n
}

// ints are numbers near the places where arithmetic goes wrong.
func ints() (all []engine.Int) {
	for _, n := range []int64{0, 1, -1, 5, 1<<31 - 1, 1 << 31, -1 << 31, -1<<31 - 1, 1 << 32, -1 << 32, 1 << 62, -1 << 62, math.MaxInt64, math.MinInt64} {
		a := engine.IntOf(n)
		all = append(all, a, a.Add(a).Add(a), engine.Int{Hi: n >> 34, Lo: uint64(n)})
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		all = append(all, engine.Int{Hi: int64(random.Uint64()) >> (34 + random.IntN(30)), Lo: random.Uint64()})
	}
	return all
}

func TestArithmetic(t *testing.T) {
	t.Parallel()
	for _, a := range ints() {
		for _, b := range ints() {
			x, y := bigOf(a), bigOf(b)
			if sum := new(big.Int).Add(x, y); bigOf(a.Add(b)).Cmp(sum) != 0 {
				t.Errorf("%s + %s is %s, want %s", a, b, a.Add(b), sum)
			}
			if diff := new(big.Int).Sub(x, y); bigOf(a.Sub(b)).Cmp(diff) != 0 || bigOf(b.Sub(a).Neg()).Cmp(diff) != 0 {
				t.Errorf("%s - %s is %s, want %s", a, b, a.Sub(b), diff)
			}
			if a.Cmp(b) != x.Cmp(y) {
				t.Errorf("%s compared with %s is %d", a, b, a.Cmp(b))
			}
		}
		if n, fits := a.Int64(); fits != bigOf(a).IsInt64() || fits && engine.IntOf(n) != a {
			t.Errorf("%s is %d in 64 bits: %t", a, n, fits)
		}
	}
}

// Two columns of 64 bits that are added apart have the exact sum, and small terms need one of them.
func TestSplit(t *testing.T) {
	t.Parallel()
	var low, high int64
	sum := engine.Int{}
	for _, a := range ints() {
		l, h, fits := a.Split()
		if !fits || engine.Join(l, h) != a || l < math.MinInt32 || l > math.MaxInt32 {
			t.Errorf("%s is split into %d and %d (%t)", a, l, h, fits)
		}
		if n, small := a.Int64(); small && n >= math.MinInt32 && n <= math.MaxInt32 && h != 0 {
			t.Errorf("%s needs two columns", a)
		}
		low, high, sum = low+l, high+h>>8, sum.Add(engine.Join(l, h>>8))
	}
	if engine.Join(low, high) != sum {
		t.Errorf("the sum of the columns is %s, want %s", engine.Join(low, high), sum)
	}
	for hi, want := range map[int64]bool{1<<30 - 1: true, -1 << 30: true, 1 << 40: false, -1 << 40: false, math.MaxInt64: false} {
		if _, _, fits := (engine.Int{Hi: hi}).Split(); fits != want {
			t.Errorf("a number of the upper half %d fits: %t, want %t", hi, fits, want)
		}
	}
}

// Check refuses each mistake in a change that is right without it.
func TestCheck(t *testing.T) {
	t.Parallel()
	const once, shard, record, doc = 1, 2, 3, 4
	kinds, limits := enginetest.Kinds(), engine.Limits{RowBytes: 10, Fields: 2}
	one := func(id engine.FieldID, n int64) []engine.Field {
		return []engine.Field{{ID: id, Value: engine.IntOf(n)}}
	}
	sum := func(change func(c *engine.Change)) engine.Change {
		c := engine.Change{Key: engine.Key{Kind: shard, Place: 1, Name: "a", Part: 2}, Max: one(1, 1), Add: one(4, 1), Want: []engine.FieldID{1}}
		change(&c)
		return c
	}
	letter := func(change func(c *engine.Change)) engine.Change {
		c := engine.Change{Key: engine.Key{Kind: doc, Name: "a"}, Op: engine.Insert, Set: one(2, 1), Data: []byte("data")}
		change(&c)
		return c
	}
	for name, tt := range map[string]struct {
		c         engine.Change
		transact  bool
		wantRight bool
	}{
		"a sum":                      {c: sum(func(*engine.Change) {}), wantRight: true},
		"a document":                 {c: letter(func(*engine.Change) {}), wantRight: true, transact: true},
		"a wide field that was read": {c: sum(func(c *engine.Change) { c.Set, c.Add, c.Want = c.Add, nil, nil }), wantRight: true, transact: true},
		"an open field":              {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{16, 1 << 30} }), wantRight: true},
		"many fields unset":          {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{16, 17, 18} }), wantRight: true},
		"a deletion":                 {c: engine.Change{Key: engine.Key{Kind: record, Name: "a"}, Op: engine.Delete}, wantRight: true},
		"no kind":                    {c: sum(func(c *engine.Change) { c.Key.Kind = 99 })},
		"a place":                    {c: letter(func(c *engine.Change) { c.Key.Place = 1 })},
		"a part":                     {c: letter(func(c *engine.Change) { c.Key.Part = 1 })},
		"a large part":               {c: sum(func(c *engine.Change) { c.Key.Part = 1 << 24 })},
		"no name":                    {c: sum(func(c *engine.Change) { c.Key.Name = "" })},
		"a name of bytes":            {c: sum(func(c *engine.Change) { c.Key.Name = "\xff" })},
		"a control character":        {c: sum(func(c *engine.Change) { c.Key.Name = "a\x1f" })},
		"long data":                  {c: letter(func(c *engine.Change) { c.Data = make([]byte, 11) })},
		"many fields":                {c: sum(func(c *engine.Change) { c.Add = append(c.Add, one(16, 1)...) })},
		"a deletion of more":         {c: letter(func(c *engine.Change) { c.Op = engine.Delete })},
		"an upsert of once":          {c: engine.Change{Key: engine.Key{Kind: once, Name: "a"}}},
		"an addition to a document":  {c: letter(func(c *engine.Change) { c.Add = one(2, 1) })},
		"data of sums":               {c: sum(func(c *engine.Change) { c.Data = []byte("x") })},
		"an insert of sums":          {c: sum(func(c *engine.Change) { c.Op = engine.Insert })},
		"an unknown field":           {c: sum(func(c *engine.Change) { c.Add = one(7, 1) })},
		"an unknown field unset":     {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{7} })},
		"fields out of order":        {c: sum(func(c *engine.Change) { c.Add = append(one(5, 1), one(4, 1)...) })},
		"a wide set":                 {c: sum(func(c *engine.Change) { c.Set = one(5, 1) })},
		"a wide maximum":             {c: sum(func(c *engine.Change) { c.Max, c.Add, c.Want = one(4, 1), nil, nil })},
		"a negative maximum":         {c: sum(func(c *engine.Change) { c.Max = one(1, -1) })},
		"a large number":             {c: sum(func(c *engine.Change) { c.Set = []engine.Field{{ID: 2, Value: engine.Int{Hi: 1}}} })},
		"a field twice":              {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{1} })},
		"both for one field":         {c: sum(func(c *engine.Change) { c.Add = one(1, 1) })},
		"unset out of order":         {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{17, 16} })},
		"Want of a wide field":       {c: sum(func(c *engine.Change) { c.Want = []engine.FieldID{4} })},
		"Want of another field":      {c: sum(func(c *engine.Change) { c.Want = []engine.FieldID{3} })},
		"Want in a transaction":      {c: sum(func(*engine.Change) {}), transact: true},
	} {
		err := kinds.Check(&tt.c, &limits, tt.transact)
		if (err == nil) != tt.wantRight || err != nil && !errors.Is(err, engine.ErrRefused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	limits.MaxThenAdd = true
	both := sum(func(c *engine.Change) { c.Add = one(1, 1) })
	if err := kinds.Check(&both, &limits, false); err != nil {
		t.Errorf("both for one field, where the engine takes it: %v", err)
	}
}
