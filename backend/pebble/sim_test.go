package pebble

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/internal/testing/powertest"
	"github.com/countmill/countmill/internal/testing/sim"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
)

// A simMachine has a directory on a disk that forgets, and that has no room for tables for a while.
type simMachine struct {
	disk   *powertest.Disk
	random *rand.Rand
	spared atomic.Bool
	tables atomic.Int64 // until the disk has room again
	room   int64        // how many of these it refuses
	full   *atomic.Int64
}

func (m *simMachine) Open(clock func() time.Time, age func() time.Duration) (engine.Engine, error) {
	if after := m.disk.AfterCut(); after != nil {
		m.disk = after
	}
	m.tables.Store(0)
	if r := m.random; !m.spared.Load() {
		n := 2 + r.Int64N(5)
		defer func() { m.tables.Store(n) }() // once it is open
		m.room = r.Int64N(n - 1)
		m.disk.CutBefore(1+r.IntN([]int{50, 400}[r.IntN(2)]), []int{0, 100, r.IntN(101)}[r.IntN(3)], r, func() {})
	}
	return openDatabase(Config{
		Dir: "var/lib/data", FS: errorfs.Wrap(m.disk, errorfs.InjectorFunc(m.refuse)), Cache: 1 << 20, memTable: 8 << 10, clock: clock, age: age,
		Exit: func(int) { panic("the engine ends the process") },
	}, protocol.Kinds)
}

func (m *simMachine) refuse(op errorfs.Op) error {
	if op.Kind != errorfs.OpCreate || !strings.HasSuffix(op.Path, ".sst") || m.spared.Load() || m.tables.Add(-1) < 0 || m.tables.Load() >= m.room {
		return nil
	}
	m.full.Add(1)
	return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
}

func (m *simMachine) Up() bool { return true }

func (m *simMachine) Arm() {}

func (m *simMachine) Lost() bool { return m.disk.AfterCut() != nil }

func (m *simMachine) Spare() {
	m.spared.Store(true)
	m.disk.CutBefore(0, 0, nil, nil)
}

// Schedules of the simulator run over a directory whose machine loses power. A seed repeats all draws, but not the order of
// Pebble's own goroutines.
func TestSimulated(t *testing.T) {
	t.Parallel()
	simulate(t, 3*time.Second)
}

func TestSimulatedLong(t *testing.T) {
	longtest.Only(t, "it runs schedules for five minutes")
	simulate(t, 5*time.Minute)
}

func simulate(t *testing.T, limit time.Duration) {
	t.Helper()
	var full atomic.Int64
	sim.Schedules(t, limit, *powerSeed, func(seed uint64) sim.Machine {
		return &simMachine{disk: powertest.NewDisk(), random: rand.New(rand.NewPCG(seed, 0x6469736b)), full: &full}
	})
	t.Logf("%d tables refused", full.Load())
}
