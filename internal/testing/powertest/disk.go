// Package powertest simulates the disk of a machine that loses power. Killing a process does not lose
// unsynced data, because the operating system still has it. This disk loses it.
package powertest

import (
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A Disk is a file system in memory. When the power is cut it keeps all synced data, and a share of the
// rest, by blocks of 4 KiB and by directory entries.
type Disk struct {
	vfs.FS
	files *vfs.MemFS

	mu     sync.Mutex
	writes int // until the cut; 0 if none is planned
	cut    func()
	share  int
	random *rand.Rand
	after  *Disk
}

// syncYields is how often other goroutines may run before a sync. A guess that finds bugs.
const syncYields = 50

// NewDisk returns an empty disk.
func NewDisk() *Disk { return newDisk(vfs.NewCrashableMem()) }

func newDisk(files *vfs.MemFS) *Disk {
	d := &Disk{files: files}
	d.FS = errorfs.Wrap(files, errorfs.InjectorFunc(d.before))
	return d
}

// CutBefore cuts the power right before the n-th changing operation from now on. Each unsynced block
// and entry survives with a chance of share percent. At that moment it calls at, while nothing changes
// on the disk; at must return soon. Users of this disk continue as if nothing had happened: AfterCut
// returns the disk of the machine after the cut.
func (d *Disk) CutBefore(n, share int, random *rand.Rand, at func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes, d.share, d.random, d.cut = n, share, random, at
}

// AfterCut returns the disk with which the machine starts again, or nil before the cut.
func (d *Disk) AfterCut() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.after
}

// before runs before every operation. It holds the lock while it clones, so that other operations wait
// for it.
func (d *Disk) before(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		// A real disk takes time for a sync. Operations of others in that time show whether a promise
		// was given too early.
		for range syncYields {
			runtime.Gosched()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writes == 0 {
		return nil
	}
	if d.writes--; d.writes == 0 {
		d.cut()
		d.after = newDisk(d.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: d.share, RNG: d.random}))
	}
	return nil
}
