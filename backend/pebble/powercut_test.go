package pebble

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/powertest"
	"github.com/countmill/countmill/store"
)

var (
	powerCuts = flag.Int("cuts", 0, "power cuts; 0 for as many as fit into a second")
	powerSeed = flag.Uint64("seed", 0, "of the first machine's life; 0 for a fresh one")
)

// cutsPerLife is how often one machine loses power. The next machine begins empty.
const cutsPerLife = 20

// A machine folds, stores dead letters, grows counters, sweeps and sets its window. It loses power at a
// random moment and opens its store on the remaining files, again and again. Every acknowledged deed
// must be there. Every other deed is there completely or not at all, and a repeated one counts once.
// ForgetBefore advances by days meanwhile, and never lags behind a removed marker.
//
// A seed repeats all random draws. The runtime orders Pebble's own goroutines, so a seed may need a few
// tries. The test keeps the image of a failure.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	seed, until := *powerSeed, time.Now().Add(time.Second)
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	var lives, cuts, deeds atomic.Int64
	more := func() bool {
		if *powerCuts > 0 {
			return int(lives.Load())*cutsPerLife < *powerCuts
		}
		return time.Now().Before(until)
	}
	var all sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) { // a machine spends most of its time waiting for its own goroutines
		all.Go(func() {
			for more() && !t.Failed() {
				m := &machine{disk: powertest.NewDisk(), seed: seed + uint64(lives.Add(1)) - 1}
				if err := m.live(t.Context()); err != nil {
					t.Errorf("life of seed %d, cut %d: %v", m.seed, m.cuts, err)
				}
				cuts.Add(int64(m.cuts))
				deeds.Add(int64(len(m.ledger.deeds)))
			}
		})
	}
	all.Wait()
	t.Logf("%d power cuts of %d machines from seed %d on, %d folds and dead letters", cuts.Load(), lives.Load(), seed, deeds.Load())
}

// dataDir is below directories that the store must make.
const dataDir = "var/lib/data"

// A machine lives through cutsPerLife power cuts.
type machine struct {
	seed   uint64
	cuts   int
	disk   *powertest.Disk
	ledger ledger
	age    atomic.Int64 // the machine's age in nanoseconds

	// folding is held while a fold is drawn or repeated, and until it ends: ForgetBefore does not advance between the
	// look at it and the fold. Here it advances by hours in a moment, and no process may be frozen for that long.
	folding sync.RWMutex
}

// aging is a process age that advances with each call, so that ForgetBefore does too.
func (m *machine) aging() time.Duration { return time.Duration(m.age.Add(int64(store.CheckEvery))) }

func (m *machine) live(ctx context.Context) error {
	random := rand.New(rand.NewPCG(m.seed, 0))
	for range cutsPerLife {
		m.ledger.cut = false
		// Half of the cuts come early, so that the opening is cut too.
		m.disk.CutBefore(1+random.IntN([]int{50, 400}[random.IntN(2)]), []int{0, 100, random.IntN(101)}[random.IntN(3)], random, func() {
			m.ledger.mu.Lock()
			defer m.ledger.mu.Unlock()
			m.ledger.cut = true
		})
		if err := m.run(ctx, rand.New(rand.NewPCG(m.seed, uint64(m.cuts)+1))); err != nil {
			return err
		}
		m.disk, m.cuts = m.disk.AfterCut(), m.cuts+1
	}
	m.ledger.cut = false
	return m.run(ctx, nil) // without random: only compare
}

// run opens the store, compares it with the ledger, and works until the power is cut. With a nil random
// it only compares.
func (m *machine) run(ctx context.Context, random *rand.Rand) error {
	var log strings.Builder
	clock := clockStart.Add(1000 * time.Duration(m.age.Load()))
	s, err := Open(Config{
		Dir: dataDir, FS: m.disk, Cache: 1 << 20, memTable: 64 << 10, age: m.aging,
		// The clock is far ahead of ForgetBefore, which advances with the machine's age. It does not move: a transaction during which
		// it moved would be that of a suspended process.
		clock:  func() time.Time { return clock },
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Exit:   func(int) { panic("the store ends the process: " + log.String()) },
	})
	if err != nil {
		return m.keep(fmt.Errorf("open: %w", err))
	}
	defer s.Close()
	wrong, err := m.ledger.check(ctx, s)
	if err != nil {
		return m.keep(err)
	}
	if len(wrong) > 0 {
		return m.keep(fmt.Errorf("%s", strings.Join(wrong, "\n")))
	}
	if random == nil {
		return nil
	}
	var workers sync.WaitGroup
	errs := make(chan error, 2)
	for range cap(errs) {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		workers.Go(func() {
			for goOn := true; goOn; {
				var err error
				if goOn, err = m.step(ctx, s, own); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	workers.Wait()
	select {
	case err := <-errs:
		return m.keep(err)
	default:
		return nil
	}
}

// step does one random thing that a process may do. It returns false after the cut.
func (m *machine) step(ctx context.Context, s *Store, random *rand.Rand) (bool, error) {
	l := &m.ledger
	switch random.IntN(13) {
	case 0:
		return l.bury(ctx, s, random)
	case 1:
		// Beside commits under way: Check waits for them, and writes the count only now and then.
		if err := s.keepCommitCount(); err != nil {
			return true, err
		}
		m.folding.Lock()
		defer m.folding.Unlock()
		_, err := l.look(ctx, s)
		return true, err
	case 2:
		return true, s.Beat(ctx, store.Worker{ID: "w", Expires: time.Now().Add(time.Hour)})
	case 3: // a finished epoch is dropped; the others must stay
		_, err := s.Fold(ctx, &store.Commit{Markers: marker(l.forgetBefore.Load().Add(-10 * day))})
		if err != nil {
			return false, err
		}
		m.folding.Lock()
		defer m.folding.Unlock()
		for range random.IntN(int(2*day/(store.ForgetPace*store.CheckEvery))) + 1 {
			if _, err := l.look(ctx, s); err != nil {
				return true, err
			}
		}
		err = s.Sweep(ctx)
		_, looked := l.look(ctx, s)
		return true, errors.Join(err, looked)
	case 12:
		return l.setWindow(ctx, s, random)
	case 4, 5:
		return m.fold(ctx, s, random, true)
	}
	return m.fold(ctx, s, random, false)
}

// fold folds something new, or repeats or looks up a fold without an answer if there is one.
func (m *machine) fold(ctx context.Context, s *Store, random *rand.Rand, again bool) (bool, error) {
	l := &m.ledger
	m.folding.RLock()
	defer m.folding.RUnlock()
	if again {
		if d := l.unsettled(random); d != nil {
			if random.IntN(2) == 0 {
				return l.ask(ctx, s, d)
			}
			return l.fold(ctx, s, d)
		}
	}
	return l.fold(ctx, s, l.newFold(random))
}

// keep copies the machine's disk, as it is now, to a directory that stays.
func (m *machine) keep(err error) error {
	if to, e := os.MkdirTemp("", "countmill-powercut-"); e == nil && m.disk.Save(dataDir, to+"/data") == nil {
		err = fmt.Errorf("%w\nthe data directory as it is now: %s/data", err, to)
	}
	return err
}
