package recount

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/countmill/countmill"
)

// The ranges of a range have each of its places once, whatever their sizes.
func TestRangesCoverTheirRange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		token     string
		from, end uint64
	}{
		{"", 0, math.MaxUint64},
		{"0000000000000000-ffffffffffffffff", 0, math.MaxUint64},
		{"4000000000000000-7fffffffffffffff", 1 << 62, 1<<63 - 1},
		{"00000000000000ff-0000000000000101", 255, 257},
		{"0000000000000007-0000000000000007", 7, 7},
		{"ffffffffffffff00-ffffffffffffffff-ffffffffffffffff", math.MaxUint64 - 255, math.MaxUint64},
	} {
		at := tt.from
		for token, n := tt.token, 0; ; n++ {
			p, err := parseRange(token)
			if err != nil || p.From != at || p.End != tt.end || p.To < p.From || p.To > p.End {
				t.Fatalf("%s: range %d is %+v, %v, want one from %x to %x at most", tt.token, n, p, err, at, tt.end)
			}
			if n == 0 || n == 3 {
				p = p.half().half()
			}
			if token = p.next(); token == "" {
				if p.To != tt.end {
					t.Errorf("%s: the last range ends at %x, want %x", tt.token, p.To, tt.end)
				}
				break
			}
			at = p.To + 1
		}
	}
}

func TestWrongRanges(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("0", 16)
	for _, token := range []string{"ff", whole, "-", whole + "-", whole + "-1", "000000000000000g-ffffffffffffffff", "0000000000000002-0000000000000001", strings.Join([]string{whole, whole, whole, whole}, "-")} {
		if p, err := parseRange(token); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%q is the range %+v, %v, want ErrInvalid", token, p, err)
		}
	}
}

// A call waits while others have all turns, and gives up with its caller.
func TestRecountsTakeTurns(t *testing.T) {
	t.Parallel()
	x := New(nil, Config{AtOnce: 1}) // a call that has no turn does not touch the store
	x.turns <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Recount(ctx, Query{}); !errors.Is(err, countmill.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrUnavailable because the caller gave up", err)
	}
}
