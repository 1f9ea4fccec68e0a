package reader

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/countmill/countmill"
)

// The sources of a total.
const (
	SourceCache = "cache"
	SourceStore = "store"
)

// A Total is what a counter's shards summed to at one moment, less what they summed to at
// its last reset.
type Total struct {
	Counter string
	Total   int64
	// AsOf is that moment, by the store's clock: every fold committed by then is in
	// Total.
	AsOf time.Time
	// Source is SourceCache or SourceStore.
	Source string
	// Shards is how many shards the counter has.
	Shards int
	// Exists is false for a counter that nobody has incremented, since it was deleted where
	// it was. Total and Shards are then 0.
	Exists bool
}

// An OverflowError names a counter whose total cannot be given. It matches
// countmill.ErrOverflow.
type OverflowError struct{ Counter string }

func (e *OverflowError) Error() string {
	return fmt.Sprintf("%v: counter %q", countmill.ErrOverflow, e.Counter)
}

// Is makes errors.Is(err, countmill.ErrOverflow) true.
func (e *OverflowError) Is(target error) bool { return target == countmill.ErrOverflow }

// A sum adds shards in 128 bits: what fits in the end is a total, also where it did
// not fit half way.
type sum struct {
	hi int64
	lo uint64
}

func (s *sum) add(v int64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, uint64(v), 0)
	s.hi += v>>63 + int64(carry)
}

func (s *sum) subtract(v int64) {
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, uint64(v), 0)
	s.hi -= v>>63 + int64(borrow)
}

// int64 returns the sum and whether it fits.
func (s *sum) int64() (int64, bool) {
	v := int64(s.lo)
	return v, s.hi == v>>63
}
