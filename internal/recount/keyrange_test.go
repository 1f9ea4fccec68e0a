package recount

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/countmill/countmill"
)

// The ranges have each place once, whatever their sizes.
func TestRangesCoverAllPlaces(t *testing.T) {
	t.Parallel()
	at := uint64(0)
	for token, n := "", 0; ; n++ {
		p, err := parseRange(token)
		if err != nil || p.From != at || p.To < p.From {
			t.Fatalf("range %d is %+v, %v, want one from %x on", n, p, err, at)
		}
		if n == 0 || n == 3 {
			p = p.half().half()
		}
		if token = p.next(); token == "" {
			if p.To != math.MaxUint64 {
				t.Errorf("the last range ends at %x", p.To)
			}
			break
		}
		at = p.To + 1
	}
}

func TestWrongRanges(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("0", 16)
	for _, token := range []string{"ff", whole, "-", whole + "-", whole + "-1", "000000000000000g-ffffffffffffffff", whole + "-" + whole + "-" + whole} {
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
