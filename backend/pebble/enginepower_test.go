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
	"github.com/countmill/countmill/store/engine"
)

// The kinds and fields of a machine.
const (
	onceRow engine.KindID = iota
	horizonRow
	sumRow

	ofHorizon engine.FieldID = 1
	ofCount   engine.FieldID = 2
	ofDue     engine.FieldID = 3
)

var (
	powerCuts = flag.Int("cuts", 0, "power cuts; 0 for as many as fit into a second")
	powerSeed = flag.Uint64("seed", 0, "of the first machine's life, or of the first schedule; 0 for a fresh one")
)

// cutsPerLife is how often one machine loses power. The next machine begins empty.
const cutsPerLife = 20

// untilFound is a time for a test that ends with the first mistake: it is longer if there is one.
func untilFound(otherwise time.Duration) time.Duration {
	if os.Getenv("COUNTMILL_TEST_PLANTED") != "" {
		return 4 * time.Minute
	}
	return otherwise
}

var powerKinds = engine.Kinds{
	onceRow:    {Name: "once", Class: engine.Once, Binary: true, Due: ofDue, Expires: true, Fields: []engine.FieldSpec{{ID: ofDue, Name: "due"}}},
	horizonRow: {Name: "horizon", Class: engine.Sums, Fields: []engine.FieldSpec{{ID: ofHorizon, Name: "horizon"}}},
	sumRow:     {Name: "sum", Class: engine.Sums, Places: true, Parts: true, Fields: []engine.FieldSpec{{ID: ofCount, Name: "count", Wide: true}}},
}

// Machines lose power at random moments. After each cut the engine opens, and has every deed that was answered; a deed
// without an answer is there whole or not at all. A seed repeats all random draws, but not the order of goroutines.
func TestPowerCutOfRows(t *testing.T) {
	t.Parallel()
	seed, until := *powerSeed, time.Now().Add(untilFound(time.Second))
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	var lives, cuts, deeds atomic.Int64
	var all sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !t.Failed() && (*powerCuts > 0 && int(lives.Load())*cutsPerLife < *powerCuts || *powerCuts == 0 && time.Now().Before(until)) {
				m := &rowMachine{disk: powertest.NewDisk(), seed: seed + uint64(lives.Add(1)) - 1, deeds: make(map[string]*rowDeed)}
				if err := m.live(t.Context()); err != nil {
					t.Errorf("life of seed %d, cut %d: %v", m.seed, m.cuts, err)
				}
				cuts.Add(int64(m.cuts))
				deeds.Add(int64(len(m.deeds)))
			}
		})
	}
	all.Wait()
	t.Logf("%d power cuts of %d machines from seed %d on, %d deeds", cuts.Load(), lives.Load(), seed, deeds.Load())
}

// A rowDeed is a commit or a transaction that inserts a marker and adds 1 to its row and to that of its kind. horizon is its Due.
type rowDeed struct {
	id    string
	row   engine.Key
	due   int64
	first bool // its first attempt is under way
	known bool // it was answered before the cut, or found
}

// A rowMachine lives through power cuts.
type rowMachine struct {
	seed uint64
	cuts int
	disk *powertest.Disk

	// moving is held for writing while the horizon moves: nobody repeats a deed whose marker has gone meanwhile.
	moving sync.RWMutex

	mu      sync.Mutex // guards all below
	cut     bool
	deeds   map[string]*rowDeed
	horizon int64 // the last one for which Expire was called
}

func (m *rowMachine) live(ctx context.Context) error {
	random := rand.New(rand.NewPCG(m.seed, 0))
	for range cutsPerLife {
		m.cut = false
		m.disk.CutBefore(1+random.IntN([]int{50, 400}[random.IntN(2)]), []int{0, 100, random.IntN(101)}[random.IntN(3)], random, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.cut = true
		})
		if err := m.run(ctx, rand.New(rand.NewPCG(m.seed, uint64(m.cuts)+1))); err != nil {
			return err
		}
		m.disk, m.cuts = m.disk.AfterCut(), m.cuts+1
	}
	m.cut = false
	return m.run(ctx, nil)
}

// run opens the engine, compares it with the deeds, and works until the power is cut. With a nil random it only compares.
func (m *rowMachine) run(ctx context.Context, random *rand.Rand) error {
	var log strings.Builder
	e, err := openDatabase(Config{
		Dir: "var/data", FS: m.disk, Cache: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Exit: func(int) { panic("the engine ends the process: " + log.String()) },
	}, powerKinds)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := m.compare(ctx, e); err != nil || random == nil {
		return err
	}
	var workers sync.WaitGroup
	errs := make(chan error, 2*few) // so many that transactions gather
	for range cap(errs) {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		workers.Go(func() {
			for !m.isCut() {
				if err := m.step(ctx, e, own); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	workers.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func (m *rowMachine) isCut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut
}

// step does one random thing.
func (m *rowMachine) step(ctx context.Context, e *database, random *rand.Rand) error {
	m.mu.Lock()
	d := &rowDeed{
		id: fmt.Sprintf("%d of cut %d", random.Uint64(), m.cuts), row: engine.Key{Kind: sumRow, Place: random.Uint64N(4), Name: "a"},
		due: m.horizon + 1 + random.Int64N(20*epochLength), first: true,
	}
	m.mu.Unlock()
	switch random.IntN(12) {
	case 0:
		if err := e.db.Flush(); err != nil {
			return err
		}
		return e.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
	case 1:
		if err := e.keepCommitCount(); err != nil { // Check writes it now and then
			return err
		}
		_, err := e.Check(ctx, nil)
		return err
	case 2:
		return m.expire(ctx, e)
	case 3, 4:
		m.moving.RLock()
		defer m.moving.RUnlock()
		return m.again(ctx, e)
	}
	m.mu.Lock()
	m.deeds[d.id] = d
	m.mu.Unlock()
	err := m.do(ctx, e, d, random.IntN(3) == 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	d.first = false
	return err
}

// do applies a deed, or finds that it was applied. Its answer counts unless the power was cut before.
func (m *rowMachine) do(ctx context.Context, e *database, d *rowDeed, transact bool) (err error) {
	one := []engine.Field{{ID: ofCount, Value: engine.IntOf(1)}}
	changes := []engine.Change{
		{Key: engine.Key{Kind: onceRow, Name: d.id}, Op: engine.Insert, Set: []engine.Field{{ID: ofDue, Value: engine.IntOf(d.due)}}},
		{Key: d.row, Add: one},
		{Key: engine.Key{Kind: sumRow, Place: 9, Name: "all"}, Add: one},
	}
	if transact {
		_, err = e.Transact(ctx, false, func(tx engine.Tx) error {
			_, err := tx.Get(ctx, []engine.Key{d.row}, ofCount)
			for i := range changes {
				tx.Change(&changes[i])
			}
			return err
		})
	} else {
		_, err = e.Commit(ctx, &engine.Commit{Changes: engine.Changes(changes...)})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.cut && (err == nil || errors.Is(err, engine.ErrExists)) {
		d.known = true
	}
	if errors.Is(err, engine.ErrConflict) || errors.Is(err, engine.ErrExists) {
		return nil
	}
	return err
}

// again repeats a deed, or looks it up, before it has been answered: another worker may be at it. It finds what it finds
// without a doubt.
func (m *rowMachine) again(ctx context.Context, e *database) error {
	m.mu.Lock()
	var d *rowDeed
	for _, x := range m.deeds {
		if !x.known && x.due >= m.horizon {
			d = x
			break
		}
	}
	m.mu.Unlock()
	if d == nil {
		return nil
	}
	key := engine.Key{Kind: onceRow, Name: d.id}
	found := false
	_, err := e.Transact(ctx, false, func(tx engine.Tx) error {
		rows, err := tx.Get(ctx, []engine.Key{key})
		found = err == nil && rows[0].Exists
		return err
	})
	m.mu.Lock()
	d.known = d.known || err == nil && found && !m.cut
	m.mu.Unlock()
	if err != nil || found {
		return err
	}
	return m.do(ctx, e, d, false)
}

// expire moves the horizon, which is written before. It does not overtake a first attempt: another worker may have repeated that deed,
// and the marker of the repeat must not go before the slower attempt comes.
func (m *rowMachine) expire(ctx context.Context, e *database) error {
	m.moving.Lock()
	defer m.moving.Unlock()
	m.mu.Lock()
	horizon := m.horizon + epochLength/2
	for _, d := range m.deeds {
		if d.first && d.due < horizon {
			m.mu.Unlock()
			return nil
		}
	}
	m.horizon = horizon
	m.mu.Unlock()
	change := engine.Change{Key: engine.Key{Kind: horizonRow, Name: "horizon"}, Max: []engine.Field{{ID: ofHorizon, Value: engine.IntOf(horizon)}}}
	if _, err := e.Commit(ctx, &engine.Commit{Changes: engine.Changes(change)}); err != nil {
		return err
	}
	return e.Expire(ctx, onceRow, horizon)
}

// compare looks for each deed.
func (m *rowMachine) compare(ctx context.Context, e *database) error {
	v := e.View()
	defer v.Close()
	rows, err := v.Get(ctx, []engine.Key{{Kind: horizonRow, Name: "horizon"}, {Kind: sumRow, Place: 9, Name: "all"}}, engine.All)
	if err != nil {
		return err
	}
	horizon, all := rows[0].Int64(ofHorizon), rows[1].Int64(ofCount)
	var known, perhaps int64
	for _, d := range m.deeds {
		rows, err := v.Get(ctx, []engine.Key{{Kind: onceRow, Name: d.id}}, ofDue)
		if err != nil {
			return err
		}
		switch found := rows[0].Exists; {
		case found:
			d.known = true
		case d.known && d.due >= horizon:
			return fmt.Errorf("the deed %q of %d was answered and is gone; the horizon is %d", d.id, d.due, horizon)
		}
		if d.known {
			known++
		} else if d.due < horizon {
			perhaps++
		}
	}
	byPlace := int64(0)
	scan := v.Scan(ctx, engine.Range{Kind: sumRow, To: engine.Key{Place: 9}}, ofCount)
	defer scan.Close()
	for row := scan.Next(); row != nil; row = scan.Next() {
		byPlace += row.Int64(ofCount)
	}
	if scan.Err() != nil || all != byPlace || all < known || all > known+perhaps {
		return fmt.Errorf("the sums are %d and %d (%v); %d deeds are known, and of %d nobody knows", all, byPlace, scan.Err(), known, perhaps)
	}
	return nil
}
