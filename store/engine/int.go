package engine

import "github.com/countmill/countmill/store/int128"

// An Int is the value of a field. Every engine keeps a wide field exactly from -2^94 to 2^94.
type Int = int128.Int

// IntOf returns n as an Int.
func IntOf(n int64) Int { return int128.Of(n) }

// Join is int128.Join.
func Join(low, high int64) Int { return int128.Join(low, high) }
