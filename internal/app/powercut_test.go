package app

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/testing/powertest"
)

var (
	powerCuts = flag.Int("cuts", 0, "power cuts; 0 for as many as fit into a second")
	powerSeed = flag.Uint64("seed", 0, "of the first machine's life; 0 for a fresh one")
)

// cutsPerLife is how often one machine loses power; the next begins empty.
const cutsPerLife = 20

// The whole of `up` on a machine that loses power. A request with the answer 202 is counted
// once. Any other is counted at most once, and exactly once after it was sent again under its
// id or key. backend/pebble has more cuts on the store alone.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	seed, until := *powerSeed, time.Now().Add(time.Second)
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	cuts, requests, answered := 0, 0, 0
	for life := uint64(0); cuts < *powerCuts || *powerCuts == 0 && time.Now().Before(until); life++ {
		m := &machine{disk: powertest.NewDisk(), random: rand.New(rand.NewPCG(seed+life, 0))}
		for n := range cutsPerLife {
			m.runUntilCut(t)
			if t.Failed() {
				t.Fatalf("life of seed %d, cut %d", seed+life, n)
			}
			cuts++
		}
		requests += len(m.requests)
		for _, r := range m.requests {
			if r.counted {
				answered++
			}
		}
	}
	t.Logf("%d power cuts from seed %d on, %d requests, %d of them answered with 202 or found", cuts, seed, requests, answered)
}

// A request adds 1 to a counter of its own, and to a counter that all requests share.
type request struct {
	counter string
	header  []string // its Idempotency-Key
	id      string   // of its increments
	counted bool     // 202, or seen after a cut
	gone    bool     // not seen after a cut
}

func (r *request) body() string {
	id := ""
	if r.id != "" {
		id = fmt.Sprintf(`,"id":%q`, r.id)
	}
	return fmt.Sprintf(`[{"counter":%q%s},{"counter":"shared"%s}]`, r.counter, id, id)
}

// again reports whether a caller who got no answer may repeat it.
func (r *request) again() bool { return r.id != "" || r.header != nil }

// A machine's callers know its answers from before the power cut.
type machine struct {
	disk   *powertest.Disk
	random *rand.Rand

	mu       sync.Mutex
	cut      bool
	requests []*request
}

func (m *machine) runUntilCut(t *testing.T) {
	t.Helper()
	m.cut = false
	share := []int{0, 100, m.random.IntN(101)}[m.random.IntN(3)]
	random := rand.New(rand.NewPCG(m.random.Uint64(), 1)) // the disk draws beside us
	m.disk.CutBefore(1+m.random.IntN([]int{60, 300}[m.random.IntN(2)]), share, random, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.cut = true
	})
	a, err := newApp(Config{Listen: "127.0.0.1:0", Store: "pebble:data"}, m.open)
	if err != nil {
		t.Error(err)
		return
	}
	r := run(t, a)
	defer r.stop(t) // the machine before the cut
	m.check(t, r)
	var callers sync.WaitGroup
	for range 4 {
		own := rand.New(rand.NewPCG(m.random.Uint64(), 0))
		callers.Go(func() {
			for q := m.draw(own); q != nil; q = m.draw(own) {
				status, _, err := r.try("POST", "/v1/increments", q.body(), q.header...)
				if err != nil || status != http.StatusAccepted {
					t.Errorf("got %d, %v: nothing fails before the machine is gone", status, err)
					return
				}
				m.mu.Lock()
				q.counted = q.counted || !m.cut
				m.mu.Unlock()
			}
		})
	}
	callers.Wait()
	m.disk = m.disk.AfterCut()
}

// open is what openBackends does, on the machine's disk.
func (m *machine) open(cfg Config) (*backends, error) {
	st, err := pebble.Open(pebble.Config{Dir: "data", FS: m.disk, Cache: 1 << 20, Exit: func(int) { panic("the store ends the process") }})
	if err != nil {
		return nil, err
	}
	bus, err := inproc.New(inproc.Config{WaitForAck: true})
	if err != nil {
		return nil, err
	}
	cache, err := memory.New(memory.Config{})
	return &backends{
		store: st, bus: backend.OpenBus{Channel: bus}, inProcess: true, cache: cache, closers: []func() error{bus.Close, st.Close},
	}, err
}

// draw returns the next request: an old one that may be repeated, or a new one. It returns nil
// after the cut.
func (m *machine) draw(random *rand.Rand) *request {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut {
		return nil
	}
	if len(m.requests) > 0 && random.IntN(4) == 0 {
		if q := m.requests[random.IntN(len(m.requests))]; q.again() {
			q.gone = false
			return q
		}
	}
	n := fmt.Sprint(len(m.requests))
	q := &request{counter: "request-" + n}
	switch random.IntN(3) {
	case 0:
		q.id = "id-" + n
	case 1:
		q.header = []string{"Idempotency-Key", "key-" + n}
	}
	m.requests = append(m.requests, q)
	return q
}

// check reads the totals of all requests, which are from before the last cut.
func (m *machine) check(t *testing.T, r *running) {
	t.Helper()
	names := []string{"shared"}
	for _, q := range m.requests {
		names = append(names, q.counter)
	}
	var counted, maybe int64
	totals := make(map[string]int64)
	for part := range slices.Chunk(names, 1000) {
		body, err := json.Marshal(map[string]any{"counters": part})
		if err != nil {
			t.Fatal(err)
		}
		var status int
		var text string
		for range 20 { // a read may time out on a busy machine
			if status, text = r.call(t, "POST", "/v1/totals", string(body)); status != http.StatusServiceUnavailable {
				break
			}
		}
		var got struct {
			Totals []struct {
				Counter string
				Total   int64
			}
		}
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&got); err != nil || status != http.StatusOK {
			t.Fatalf("totals: %d %s (%v)", status, text, err)
		}
		for _, total := range got.Totals {
			totals[total.Counter] = total.Total
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.requests {
		total := totals[q.counter]
		if total < 0 || total > 1 || q.counted && total != 1 || q.gone && total != 0 {
			t.Errorf("%s (id %q, header %q, answered or seen: %t) counts %d times", q.counter, q.id, q.header, q.counted, total)
		}
		if q.counted {
			counted++
		}
		maybe++
		if !m.cut {
			q.counted, q.gone = total == 1, total == 0
		}
	}
	if shared := totals["shared"]; shared < counted || shared > maybe {
		t.Errorf("the shared counter is %d: %d were answered or seen, %d sent", shared, counted, maybe)
	}
}
