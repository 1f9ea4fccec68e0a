package powertest

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Full returns a file system that is full after a random number of operations, for a while or for good.
// It then refuses all operations that need space, or a share of them. In half of the draws logs still
// have room.
func Full(below vfs.FS, random *rand.Rand) vfs.FS {
	var mu sync.Mutex
	until := random.IntN([]int{60, 400}[random.IntN(2)])
	room := until + 1 + random.IntN(300)
	if random.IntN(2) == 0 {
		room = 1 << 40
	}
	share := []int{100, 1 + random.IntN(100)}[random.IntN(2)]
	spared := random.IntN(2) == 0 // Pebble reserves space for logs in advance and uses it again
	n := 0
	return errorfs.Wrap(below, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpMkdirAll, errorfs.OpRename, errorfs.OpLink,
			errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate, errorfs.OpFileSync, errorfs.OpFileSyncData:
		default:
			return nil
		}
		if spared && strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if n++; n <= until || n > room || random.IntN(100) >= share {
			return nil
		}
		return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
	}))
}
