// Package powertest is the disk of a machine that loses power. A killed process does not show
// what was never synced, as the system still has it; here it is gone.
package powertest

import (
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A Disk is a file system in memory. When the power is cut it keeps all that was synced, and
// a share of what was not, by blocks of 4 KiB and by directory entries.
type Disk struct {
	vfs.FS
	files *vfs.MemFS

	mu     sync.Mutex
	writes int // until the cut; 0 when none is to come
	cut    func()
	share  int
	random *rand.Rand
	after  *Disk
}

// syncYields is how often others may come first before a sync. A guess that finds bugs.
const syncYields = 50

// NewDisk is an empty disk.
func NewDisk() *Disk { return newDisk(vfs.NewCrashableMem()) }

func newDisk(files *vfs.MemFS) *Disk {
	d := &Disk{files: files}
	d.FS = errorfs.Wrap(files, errorfs.InjectorFunc(d.before))
	return d
}

// CutBefore cuts the power right before the n-th operation from now on that changes
// something. Each block and each entry that was not synced survives with a chance of share
// percent. At that moment it calls at, while nothing changes on the disk, and at must return
// soon. Whoever uses the disk goes on as if nothing had happened: what the machine is like
// afterwards is another Disk.
func (d *Disk) CutBefore(n, share int, random *rand.Rand, at func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes, d.share, d.random, d.cut = n, share, random, at
}

// AfterCut is the disk that the machine starts with again, nil before the cut.
func (d *Disk) AfterCut() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.after
}

// Save copies a directory of the disk to this machine, for a person to look at.
func (d *Disk) Save(from, to string) error {
	_, err := vfs.Clone(d.files, vfs.Default, from, to)
	return err
}

// before runs before every operation. It holds the lock while it clones, so that all
// operations of others wait outside.
func (d *Disk) before(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		// A disk takes its time for this. What others do meanwhile is what tells a promise
		// that was given too early.
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
