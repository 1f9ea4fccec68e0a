package datastore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Pages of several queries keep one rate, and a page takes about a second at most.
func TestPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &paced{rate: 100, began: began}
		for n := 1; n <= 5; n++ {
			if err := p.took(t.Context(), 60); err != nil {
				t.Fatal(err)
			}
			if passed, want := time.Since(began), time.Duration(n)*600*time.Millisecond; passed != want {
				t.Errorf("%d entities took %s, want %s", 60*n, passed, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.took(ctx, 1_000_000); err == nil || time.Since(began) > 5*time.Second {
			t.Errorf("a look that nobody waits for goes on: %v after %s", err, time.Since(began))
		}
		for rate, want := range map[float64]int{0: sumsPage, 0.5: 1, 7: 7, 1e6: sumsPage} {
			if got := (&paced{rate: rate}).page(); got != want {
				t.Errorf("a page at %g entities a second has %d, want %d", rate, got, want)
			}
		}
	})
}
