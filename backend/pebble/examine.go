package pebble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/countmill/countmill/backend"
)

// The checks of an examination.
const (
	checkDirectory = "data directory"
	checkSync      = "disk sync"
)

// An Exam says how to examine a directory.
type Exam struct {
	// Dir is the directory of the store. It need not exist yet.
	Dir string
	// SyncFunc makes a file durable. Default (*os.File).Sync.
	SyncFunc func(*os.File) error
}

const (
	// slowSync is the median time of a sync from which it is a finding. A fold is one sync, so at 50 ms
	// each caller waits that long. A guess.
	slowSync = 50 * time.Millisecond
	// measured is the most syncs of an examination, and measuring how long they may take together.
	measured  = 20
	measuring = 2 * time.Second
)

// Examine looks for mistakes of the directory: whether this user can write there, and how long a sync
// takes. It does not open the store, which a running process has open, and it leaves no file behind.
func Examine(ctx context.Context, e Exam, r *backend.Report) {
	if e.SyncFunc == nil {
		e.SyncFunc = (*os.File).Sync
	}
	dir := e.Dir
	for {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is no directory", dir)
		}
		if err == nil {
			break
		}
		if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent // Open makes the directory
			continue
		}
		e.unwritable(err, r)
		return
	}
	f, err := os.CreateTemp(dir, checkpointPrefix+"doctor-*")
	if err != nil {
		e.unwritable(err, r)
		return
	}
	defer func() {
		_ = f.Close()
		if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) { // a store that has started removes it too
			e.unwritable(err, r)
		}
	}()
	r.Done(checkDirectory, "this user can write there; only a start finds damage")
	e.sync(ctx, f, r)
}

func (e Exam) unwritable(err error, r *backend.Report) {
	r.Find(backend.Finding{
		Check: checkDirectory, What: fmt.Sprintf("The data directory %s cannot be written by this user: %v.", e.Dir, err),
		Why: "countmill does not start there, or cannot count.",
		Do:  "Give the directory to the user of countmill (chown), and mount its file system for writing.", Page: "howto/one-machine.md",
	})
}

// sync measures how long it takes to make 4 KiB durable.
func (e Exam) sync(ctx context.Context, f *os.File, r *backend.Report) {
	var took []time.Duration
	page := make([]byte, 4<<10)
	for begin := time.Now(); len(took) < measured && time.Since(begin) < measuring && ctx.Err() == nil; {
		at := time.Now()
		_, err := f.WriteAt(page, int64(len(took)*len(page)))
		if err == nil {
			err = e.SyncFunc(f)
		}
		if err != nil {
			e.unwritable(err, r)
			return
		}
		took = append(took, time.Since(at))
	}
	if len(took) == 0 {
		r.Skip(checkSync, "there was no time left")
		return
	}
	slices.Sort(took)
	median := took[len(took)/2]
	r.Done(checkSync, median.Round(10*time.Microsecond).String())
	if median >= slowSync {
		r.Find(backend.Finding{
			Check: checkSync, What: fmt.Sprintf("A sync of the disk of %s takes %s.", e.Dir, median.Round(time.Millisecond)),
			Why: "Each fold is one sync, and callers of POST /v1/increments wait for it.",
			Do:  "Put the directory on a local SSD, and look for other programs that write to the disk.", Page: "howto/one-machine.md",
		})
	}
}
