package aggregator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// While a commit is slow, the next one must not grow beyond a window: a store without a limit
// could not finish it in time.
func TestNoCommitIsLargerThanAWindow(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  aggregator.Config
		want int // entities of the largest commit
	}{
		"messages":             {aggregator.Config{WindowMessages: 10}, 11},
		"counters and markers": {aggregator.Config{WindowCounters: 21}, 21},
		"memory":               {aggregator.Config{WindowMemory: 15_000}, 12},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := strict(t, protocoltest.Options{Entities: 1e6, Latency: time.Second})
				c.cfg.Commits = 1
				r := run(t, st, c.cfg)
				for i := range 60 {
					r.send(t, identified(fmt.Sprint(i), 1))
				}
				settle(time.Hour)
				r.want(t, map[string]int64{"a": 60})
				if got := st.Counts().LargestFold; got > c.want {
					t.Errorf("a commit of %d entities, want at most %d", got, c.want)
				}
			})
		})
	}
}

// Copies of parts in process fill no window: nothing would ever empty it.
func TestCopiesFillNoWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, strict(t, protocoltest.Options{Latency: time.Second}), aggregator.Config{WindowMessages: 5, HeldMessages: 100})
		p := identified("x", 1)
		r.send(t, p)
		settle(300 * time.Millisecond)
		for range 20 {
			r.send(t, p)
		}
		settle(time.Minute)
		m := r.send(t, identified("y", 1))
		settle(time.Minute)
		if !acked(m) {
			t.Error("not acknowledged")
		}
		r.want(t, map[string]int64{"a": 2})
	})
}
