package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/store"
)

// A home is the directory that was opened, recognised by two files that stay in it: the
// lock and the newest write-ahead log. While one of them is missing, or is another file of
// the same name, a fold would go to files that nobody can open again.
//
// A nil home is always there, and so is any home before settle.
type home struct {
	dir  string
	lock atomic.Pointer[landmark]
	log  atomic.Pointer[landmark]

	ending sync.Once
	ended  chan struct{}
}

// A landmark is a file as it was when it was made or opened.
type landmark struct {
	path string
	info os.FileInfo
}

func newHome(dir string) *home { return &home{dir: dir, ended: make(chan struct{})} }

func (h *home) lockFile() string { return filepath.Join(h.dir, "LOCK") }

// settle notes the lock, from when on check looks.
func (h *home) settle() error {
	info, err := os.Stat(h.lockFile())
	if err == nil {
		h.lock.Store(&landmark{h.lockFile(), info})
	}
	return err
}

// follow notes the log that Pebble has just made. Without its place check goes by the lock.
func (h *home) follow(path string) {
	if h == nil {
		return
	}
	mark := &landmark{path: path}
	if info, err := os.Stat(path); err == nil {
		mark.info = info
	}
	h.log.Store(mark)
}

// check costs two stats.
func (h *home) check() error {
	if h == nil {
		return nil
	}
	if err := h.same(); err != nil || h.lock.Load() == nil {
		return err
	}
	for {
		log := h.log.Load()
		if log == nil || log.info == nil {
			return nil
		}
		err := h.look(log)
		if err == nil || h.log.Load() == log { // else Pebble removed it, and has another by now
			return err
		}
	}
}

// same is check without the log: whether files that are made there are made in the right
// directory.
func (h *home) same() error {
	if h == nil {
		return nil
	}
	if lock := h.lock.Load(); lock != nil {
		return h.look(lock)
	}
	return nil
}

func (h *home) look(at *landmark) error {
	info, err := os.Stat(at.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s: %w", h.dir, err)
	}
	if err != nil {
		return fmt.Errorf("%w: data directory %s is gone: put it back, or restart: %w", store.ErrOtherDatabase, h.dir, err)
	}
	if !os.SameFile(info, at.info) {
		return fmt.Errorf("%w: data directory %s was replaced while in use: put it back, or restart: %s is another file", store.ErrOtherDatabase, h.dir, filepath.Base(at.path))
	}
	return nil
}

// homeEvery is how often a commit looks whether the directory has come back.
const homeEvery = 100 * time.Millisecond

// await returns when the directory is where it was. A commit waits here after its sync:
// while its files are elsewhere it cannot be called durable, and it may still become that.
// The error is for the end of the store, and leaves open what becomes of the commit.
func (h *home) await() error {
	for {
		err := h.check()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(homeEvery):
		case <-h.ended:
			return err
		}
	}
}

// end ends all waiting.
func (h *home) end() {
	if h != nil {
		h.ending.Do(func() { close(h.ended) })
	}
}
