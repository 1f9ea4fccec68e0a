//go:build unix && !solaris && !illumos && !aix

package transfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/transfer"
)

// One of many has a file at a time, and nothing is left of it.
func TestHold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	var holders, held atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				release, err := transfer.Hold(path)
				if errors.Is(err, transfer.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold it at the same time", n)
					return
				}
				held.Add(1)
				time.Sleep(time.Microsecond) // for others to try
				holders.Add(-1)
				release()
				release()
			}
		})
	}
	all.Wait()
	if held.Load() == 0 {
		t.Error("it was never held")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
