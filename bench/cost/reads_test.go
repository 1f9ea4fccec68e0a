package cost

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/backend/memcached"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A dashboard shows some counters, which it requests in one call.
const (
	readCounters  = 1000
	readShards    = 20
	readClients   = 100
	readPerCall   = 100
	readStaleness = 2 * time.Second // the default with datastore
)

// A dashboard says how clients make requests.
type dashboard struct {
	every   time.Duration // a client requests every counter once in this time
	inStep  bool          // all clients make the same request at the same moment
	readers int           // that share one cache
}

func (d dashboard) String() string {
	together := ""
	if d.inStep {
		together = ", in step"
	}
	return fmt.Sprintf("all counters every %s, %d a call%s, %d readers", d.every, readPerCall, together, d.readers)
}

// Every client requests every counter once in the time that a total may be old. So a total is read from
// the store once and served to 100 clients: at best 21 entities for 100 totals, 210 for 1,000.
func TestReads(t *testing.T) {
	ten := dashboard{every: readStaleness, readers: 10}
	dashboards := choose([]dashboard{
		{every: 500 * time.Millisecond, readers: 1}, {every: readStaleness, readers: 1}, {every: 10 * time.Second, readers: 1},
		ten, {every: readStaleness, inStep: true, readers: 2}, {every: readStaleness, inStep: true, readers: 10},
	}, []dashboard{ten})
	for _, d := range dashboards {
		synctest.Test(t, func(t *testing.T) {
			cache, err := memory.New(memory.Config{})
			if err != nil {
				t.Fatal(err)
			}
			var shared store.Cache = cache
			if *unlockedFlag {
				shared = unlocked{cache}
			}
			f := read(t, slices.Repeat([]store.Cache{shared}, d.readers), d, choose(60*time.Second, 10*time.Second))
			keepReads("memory: "+d.String(), f)
			if got := f.perThousand(); d.every == readStaleness && !*unlockedFlag && got > 300 {
				t.Errorf("%s: %.0f entities read for 1,000 totals, want at most 300", d, got)
			}
		})
	}
}

// unlocked is a cache whose lock every caller gets.
type unlocked struct{ store.Cache }

func (unlocked) Lock(context.Context, string, time.Duration) (bool, error) { return true, nil }

// The same on memcached itself, with two readers that share it. Its answers take no time here, because
// virtual time stops while anybody waits for a socket.
func TestReadsMemcached(t *testing.T) {
	if testing.Short() {
		t.Skip("starts memcached")
	}
	addr := emulator.Memcached(t).Host()
	synctest.Test(t, func(t *testing.T) {
		d := dashboard{every: readStaleness, readers: 2}
		var caches []store.Cache
		for range d.readers {
			// The sockets' deadlines use the machine's time.
			cache, err := memcached.Open(memcached.Config{Servers: []string{addr}, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer cache.Close()
			caches = append(caches, cache)
		}
		f := read(t, caches, d, choose(20*time.Second, 4*time.Second))
		keepReads("memcached: "+d.String(), f)
		if got := f.perThousand(); got > 300 {
			t.Errorf("%s: %.0f entities read for 1,000 totals, want at most 300", d, got)
		}
	})
}

// readFigures are the cost of serving totals.
type readFigures struct {
	Label   string
	Served  int
	Keys    int
	Workers int
	Per1000 float64
}

func (f readFigures) perThousand() float64 {
	return float64(f.Keys+f.Workers) * 1000 / float64(f.Served)
}

// read makes clients read from the readers in turn, and counts after a while in which the cache fills.
func read(t *testing.T, caches []store.Cache, d dashboard, lasts time.Duration) readFigures {
	st := protocoltest.New(protocoltest.Options{Latency: storeTakes, Errorf: t.Errorf})
	names := load.Names(readCounters)
	fill(t, st, names)
	var readers []*reader.Reader
	for _, cache := range caches {
		r, err := reader.New(st, cache, reader.Config{Guess: readShards, DefaultStaleness: readStaleness})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range readClients {
		wg.Go(func() { ask(ctx, t, readers[i%len(readers)], i, names, d) })
	}
	time.Sleep(2 * max(d.every, readStaleness))
	before := tally(st, readers)
	time.Sleep(lasts)
	after := tally(st, readers)
	cancel()
	wg.Wait()
	return readFigures{Served: after.Served - before.Served, Keys: after.Keys - before.Keys, Workers: after.Workers - before.Workers}
}

// fill makes every counter and its shards.
func fill(t *testing.T, st *protocoltest.Store, names []string) {
	for _, name := range names {
		if err := st.Grow(t.Context(), []store.Growth{{Counter: name, Shards: readShards}}); err != nil {
			t.Fatal(err)
		}
	}
	worker := store.Worker{ID: "w", Expires: time.Now().Add(24 * time.Hour)}
	if err := st.Beat(t.Context(), worker); err != nil {
		t.Fatal(err)
	}
}

// ask is a client: it goes through all counters, and begins again when it is due. Clients are not in
// step with each other.
func ask(ctx context.Context, t *testing.T, r *reader.Reader, client int, names []string, d dashboard) {
	if d.inStep {
		client = 0
	}
	random := rand.New(rand.NewPCG(9, uint64(client)))
	next := time.Now().Add(time.Duration(random.Int64N(int64(d.every))))
	for {
		for _, at := range random.Perm(len(names) / readPerCall) {
			asked := names[at*readPerCall : (at+1)*readPerCall]
			if !until(ctx, next) {
				return
			}
			r.Pipeline(ctx) // every answer with a total has it
			got, err := r.Totals(ctx, asked, -1)
			if ctx.Err() != nil {
				return
			}
			if err != nil || len(got) != len(asked) {
				t.Errorf("got %d totals, error %v", len(got), err)
				return
			}
			next = next.Add(d.every * time.Duration(len(asked)) / time.Duration(len(names)))
		}
	}
}

func until(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func tally(st *protocoltest.Store, readers []*reader.Reader) readFigures {
	read := st.Counts().Read
	f := readFigures{Keys: read["record"] + read["shard"], Workers: st.Calls("scan worker")}
	for _, r := range readers {
		s := r.Stats()
		f.Served += int(s.FromCache + s.FromStore)
	}
	return f
}
