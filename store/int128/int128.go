// Package int128 has the numbers of sums. Adding counts of 64 bits never leaves them.
package int128

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
)

// An Int is a sum of 128 bits in two's complement. Ints compare with ==.
type Int struct {
	Hi int64
	Lo uint64
}

// Of returns n as an Int.
func Of(n int64) Int { return Int{n >> 63, uint64(n)} }

// Add returns a+b.
func (a Int) Add(b Int) Int {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	return Int{a.Hi + b.Hi + int64(carry), lo}
}

// Sub returns a-b.
func (a Int) Sub(b Int) Int {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	return Int{a.Hi - b.Hi - int64(borrow), lo}
}

// Neg returns -a.
func (a Int) Neg() Int { return Int{}.Sub(a) }

// Cmp compares a and b as numbers.
func (a Int) Cmp(b Int) int { return cmp.Or(cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo)) }

// Int64 returns the lower 64 bits, and whether they are all of a.
func (a Int) Int64() (n int64, fits bool) { return int64(a.Lo), a.Hi == int64(a.Lo)>>63 }

// Halves returns two numbers whose sum is a if the second one is multiplied by 2^64. upper is 0 if a fits int64.
func (a Int) Halves() (lower, upper int64) { return int64(a.Lo), a.Hi - int64(a.Lo)>>63 }

// OfHalves is the opposite of Halves.
func OfHalves(lower, upper int64) Int { return Int{lower>>63 + upper, uint64(lower)} }

// String returns the decimal digits.
func (a Int) String() string {
	if n, fits := a.Int64(); fits {
		return strconv.FormatInt(n, 10)
	}
	n := new(big.Int).Lsh(big.NewInt(a.Hi), 64)
	return n.Add(n, new(big.Int).SetUint64(a.Lo)).String()
}

// Format writes the decimal digits for every verb.
func (a Int) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(a.String())) }

// Split returns two numbers for an engine whose columns have 64 bits: a is low + 2^32 * high. low is from -2^31
// to 2^31-1, so high is 0 for an ordinary delta, and an engine that adds only numbers other than 0 writes one
// column. Additions of low reach an end of int64 after 2^32 changes of one row at the soonest. fits is false
// beyond 95 bits.
func (a Int) Split() (low, high int64, fits bool) {
	low = int64(int32(a.Lo))
	rest := a.Sub(Of(low))
	high = rest.Hi<<32 | int64(rest.Lo>>32)
	return low, high, rest.Hi == high>>32
}

// Join is the opposite of Split, also for sums of the two numbers.
func Join(low, high int64) Int { return Int{high >> 32, uint64(high) << 32}.Add(Of(low)) }
