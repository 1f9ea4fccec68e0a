package app

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// With return=totals a request's answer has its increments in the totals, also beside many others.
func TestTotalsWithTheIncrements(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	const callers, each = 8, 40
	var confirmed atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			body := fmt.Sprintf(`[{"counter":"own%d"},{"counter":"all","delta":2}]`, i)
			for n := range int64(each) {
				before := confirmed.Load()
				status, text, err := r.try("POST", "/v1/increments?return=totals", body)
				confirmed.Add(1)
				var got struct {
					Accepted int
					Totals   []struct{ Total int64 }
				}
				if err != nil || status != 202 || json.Unmarshal([]byte(text), &got) != nil || got.Accepted != 2 || len(got.Totals) != 2 {
					t.Errorf("got %d %s (%v), want 202 with two totals", status, text, err)
					return
				}
				if own, sum := got.Totals[0].Total, got.Totals[1].Total; own != n+1 || sum < 2*(before+1) || sum > 2*callers*each {
					t.Errorf("got totals %d and %d, want %d and at least %d", own, sum, n+1, 2*(before+1))
				}
			}
		})
	}
	all.Wait()
	r.wantTotal(t, "all", 2*callers*each)
}
