package int128

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func bigOf(a Int) *big.Int {
	n, _ := new(big.Int).SetString(a.String(), 10)
	return n
}

// ints are numbers near the places where arithmetic goes wrong.
func ints() (all []Int) {
	for _, n := range []int64{0, 1, -1, 5, 1<<31 - 1, 1 << 31, -1 << 31, -1<<31 - 1, 1 << 32, -1 << 32, 1 << 62, -1 << 62, math.MaxInt64, math.MinInt64} {
		a := Of(n)
		all = append(all, a, a.Add(a).Add(a), Int{Hi: n >> 34, Lo: uint64(n)})
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		all = append(all, Int{Hi: int64(random.Uint64()) >> (34 + random.IntN(30)), Lo: random.Uint64()})
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
		n, fits := a.Int64()
		if fits != bigOf(a).IsInt64() || fits && Of(n) != a {
			t.Errorf("%s is %d in 64 bits: %t", a, n, fits)
		}
		if lower, upper := a.Halves(); OfHalves(lower, upper) != a || fits != (upper == 0) {
			t.Errorf("%s has the halves %d and %d", a, lower, upper)
		}
	}
}

// Two columns of 64 bits that are added apart have the exact sum, and small terms need one of them.
func TestSplit(t *testing.T) {
	t.Parallel()
	var low, high int64
	sum := Int{}
	for _, a := range ints() {
		l, h, fits := a.Split()
		if !fits || Join(l, h) != a || l < math.MinInt32 || l > math.MaxInt32 {
			t.Errorf("%s is split into %d and %d (%t)", a, l, h, fits)
		}
		if n, small := a.Int64(); small && n >= math.MinInt32 && n <= math.MaxInt32 && h != 0 {
			t.Errorf("%s needs two columns", a)
		}
		low, high, sum = low+l, high+h>>8, sum.Add(Join(l, h>>8))
	}
	if Join(low, high) != sum {
		t.Errorf("the sum of the columns is %s, want %s", Join(low, high), sum)
	}
	for hi, want := range map[int64]bool{1<<30 - 1: true, -1 << 30: true, 1 << 40: false, -1 << 40: false, math.MaxInt64: false} {
		if _, _, fits := (Int{Hi: hi}).Split(); fits != want {
			t.Errorf("a number of the upper half %d fits: %t, want %t", hi, fits, want)
		}
	}
}
