package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

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
