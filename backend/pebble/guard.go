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

// A guard recognises the directory that was opened by two files that stay in it: the lock and the newest
// write-ahead log. If one of them is missing or replaced, the directory was moved or replaced: a fold
// would then go to files that nobody can open again.
//
// The checks of a nil guard always pass, as do those before settle.
type guard struct {
	dir  string
	lock atomic.Pointer[landmark]
	log  atomic.Pointer[landmark]

	ending sync.Once
	ended  chan struct{}
}

// A landmark is a file's identity at the time when it was made or opened.
type landmark struct {
	path string
	info os.FileInfo
}

func newGuard(dir string) *guard { return &guard{dir: dir, ended: make(chan struct{})} }

func (g *guard) lockFile() string { return filepath.Join(g.dir, "LOCK") }

// settle records the lock file. From then on check compares it.
func (g *guard) settle() error {
	info, err := os.Stat(g.lockFile())
	if err == nil {
		g.lock.Store(&landmark{g.lockFile(), info})
	}
	return err
}

// follow records the log that Pebble has just made. If it cannot, check uses the lock alone.
func (g *guard) follow(path string) {
	if g == nil {
		return
	}
	mark := &landmark{path: path}
	if info, err := os.Stat(path); err == nil {
		mark.info = info
	}
	g.log.Store(mark)
}

// check returns an error if the directory was removed, moved or replaced. It costs two stats.
func (g *guard) check() error {
	if g == nil {
		return nil
	}
	if err := g.same(); err != nil || g.lock.Load() == nil {
		return err
	}
	for {
		log := g.log.Load()
		if log == nil || log.info == nil {
			return nil
		}
		err := g.look(log)
		if err == nil || g.log.Load() == log { // otherwise Pebble removed it and has another log now
			return err
		}
	}
}

// same compares the lock file only. It says whether a new file would be made in the right directory.
func (g *guard) same() error {
	if g == nil {
		return nil
	}
	if lock := g.lock.Load(); lock != nil {
		return g.look(lock)
	}
	return nil
}

func (g *guard) look(at *landmark) error {
	info, err := os.Stat(at.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s: %w", g.dir, err)
	}
	if err != nil {
		return fmt.Errorf("%w: data directory %s is gone: put it back, or restart: %w", store.ErrOtherDatabase, g.dir, err)
	}
	if !os.SameFile(info, at.info) {
		return fmt.Errorf("%w: data directory %s was replaced while in use: put it back, or restart: %s is another file", store.ErrOtherDatabase, g.dir, filepath.Base(at.path))
	}
	return nil
}

// guardEvery is how often a waiting commit checks whether the directory is back.
const guardEvery = 100 * time.Millisecond

// await returns when the directory is in its place. A commit waits here after its sync: it cannot be
// called durable while its files are elsewhere, and it may become durable yet. An error means that the
// store is closing and the commit's outcome is unknown.
func (g *guard) await() error {
	for {
		err := g.check()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(guardEvery):
		case <-g.ended:
			return err
		}
	}
}

// end ends all waits.
func (g *guard) end() {
	if g != nil {
		g.ending.Do(func() { close(g.ended) })
	}
}
