package reader_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
)

// While a check of the store is under way, reads go on by the result of the last check.
func TestOneCallerChecksTheStore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		last error // of the check before
		want error
	}{
		{nil, nil},
		{errors.New("meta id changed"), countmill.ErrUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := &slowCheck{}
			st.put("c", 1)
			r := newReader(t, st, nil, reader.Config{CheckEvery: 10 * time.Second})
			one(t, r, "c", 0)
			time.Sleep(10 * time.Second)
			st.foreign = tc.last
			if _, err := r.Totals(t.Context(), []string{"c"}, 0); !errors.Is(err, tc.want) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			st.foreign, st.delay = nil, time.Second
			before := st.checks
			took := make(chan time.Duration)
			for range 10 {
				go func() {
					began := time.Now()
					_, err := r.Totals(t.Context(), []string{"c"}, 0)
					waited := time.Since(began)
					if waited == 0 && !errors.Is(err, tc.want) || waited > 0 && err != nil {
						t.Errorf("after %s, the last check being %v: %v", waited, tc.last, err)
					}
					took <- waited
				}()
			}
			waited := 0
			for range 10 {
				if <-took > 0 {
					waited++
				}
			}
			if n := st.checks - before; n != 1 || waited != 1 {
				t.Errorf("after %v: %d of 10 callers waited for %d checks, want 1 for 1", tc.last, waited, n)
			}
		})
	}
}
