package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestNamesHave20Bytes(t *testing.T) {
	t.Parallel()
	for _, name := range Names(1001) {
		if len(name) != 20 {
			t.Fatalf("got %q of %d bytes, want 20", name, len(name))
		}
	}
}

func TestChunksDivideOrders(t *testing.T) {
	t.Parallel()
	for _, l := range All(1000, 20_000) {
		for _, chunk := range []int{1, 100, 500, 1000, 10_000} {
			if len(l.Order)%chunk != 0 {
				t.Errorf("%s: an order of %d is not divided by %d", l.Name, len(l.Order), chunk)
			}
		}
	}
}

// Want has exactly the increments that workers got, including workers that began the order again.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, l := range All(50, 20_000)[2:] {
		small := *l
		small.Order = small.Order[:1000]
		r := NewRun(&small, Goal{Increments: 5500, Most: time.Minute})
		var mu sync.Mutex
		counted := make(map[string]int64)
		err := r.Walk(t.Context(), 3, 100, func(_ context.Context, _, at int, order []uint32) error {
			mu.Lock()
			defer mu.Unlock()
			for i, n := range order {
				if small.Order[at+i] != n {
					t.Errorf("at %d: got %d, want %d", at+i, n, small.Order[at+i])
				}
				counted[small.Names[n]]++
			}
			return nil
		})
		r.Stop()
		if n, _ := r.Done(); err != nil || n < 5500 {
			t.Fatalf("got %d increments, error %v", n, err)
		}
		totals := func(_ context.Context, names []string) ([]int64, error) {
			got := make([]int64, len(names))
			for i, name := range names {
				got[i] = counted[name]
			}
			return got, nil
		}
		if err := r.Check(t.Context(), totals); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		counted[small.Names[small.Order[0]]]--
		if err := r.Check(t.Context(), totals); !errors.Is(err, ErrWrong) {
			t.Errorf("%s: one increment was lost: got %v, want %v", l.Name, err, ErrWrong)
		}
	}
}

func TestWalkEndsAtTheLimit(t *testing.T) {
	t.Parallel()
	r := NewRun(All(10, 1000)[0], Goal{Increments: 1 << 60, Most: 20 * time.Millisecond})
	err := r.Walk(t.Context(), 1, 1, func(context.Context, int, int, []uint32) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
}
