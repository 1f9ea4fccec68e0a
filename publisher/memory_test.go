package publisher

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// TestOpenMemory admits requests until the open batch is full, and compares the heap with MaxBytes.
// COUNTMILL_TEST_MEMORY sets MaxBytes in MiB; the default setting is 256.
func TestOpenMemory(t *testing.T) {
	const most = 1.5
	bound := 16 << 20
	if mib, err := strconv.Atoi(os.Getenv("COUNTMILL_TEST_MEMORY")); err == nil {
		bound = mib << 20
	}
	for _, c := range []struct {
		each, id int // increments of a request, bytes of their ids
		keyed    bool
	}{
		{1000, 4, false}, {1000, 128, false}, {1000, 4, true}, {1000, 0, false}, {1000, 0, true},
		{1, 4, false}, {1, 128, false}, {1, 4, true}, {1, 0, false}, {1, 0, true},
	} {
		t.Run(fmt.Sprintf("%d of ids of %d bytes, keyed %t", c.each, c.id, c.keyed), func(t *testing.T) {
			p, err := New(newBus(t), Config{MaxBytes: bound, MaxEntries: 1e8, KnownKeys: 1000})
			must(t, err)
			before, n := heap(), 0
			for ; err == nil; n++ {
				_, err = p.admit(waiting(t, n, c.each, c.id, c.keyed))
			}
			factor := float64(heap()-before) / float64(bound)
			t.Logf("%d requests: heap %.2f of the bound", n, factor)
			if factor > most {
				t.Errorf("the heap is %.2f times MaxBytes, at most %.1f was to be", factor, most)
			}
			runtime.KeepAlive(p)
		})
	}
}

// waiting is the nth request of that kind, while it waits for its flush.
func waiting(t *testing.T, n, each, id int, keyed bool) *request {
	incs := make([]countmill.Increment, each)
	for i := range incs {
		incs[i] = countmill.Increment{Counter: "c", Delta: 1}
		if id > 0 {
			incs[i].ID = fmt.Sprintf("%0*d", id, n*each+i)
		} else {
			incs[i].Counter = fmt.Sprintf("%08d", n*each+i)
		}
	}
	r, err := newRequest(incs, 0)
	if keyed {
		var parts []wire.Part
		parts, err = wire.CutRequest("", strconv.Itoa(n), incs)
		r = &request{parts: parts}
		r.measure(incs)
	}
	must(t, err)
	r.at, r.done = time.Now(), make(chan struct{})
	return r
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection empties the pools
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
