package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countmill/countmill/backend/inproc"
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

// Only a process that folds before it answers takes return=totals. Others count nothing.
func TestTotalsNeedAllRoles(t *testing.T) {
	t.Parallel()
	b, err := inproc.New(inproc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a, err := newApp(Config{Roles: Publisher, Listen: "127.0.0.1:0"}, func(Config) (*backends, error) {
		return &backends{bus: shared(b)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	defer r.stop(t)
	status, text := r.call(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`)
	if status != 400 || !strings.Contains(text, "needs publisher, aggregator and reader in one process") {
		t.Errorf("got %d %s, want 400 that says what it needs", status, text)
	}
	if got := r.metric(t, "countmill_increments_total"); got != 0 {
		t.Errorf("%v increments were taken", got)
	}
}
