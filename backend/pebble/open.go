package pebble

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/store/protocol"
)

// Open opens the directory, or makes it. Its errors name the directory and the remedy.
func Open(cfg Config) (*Store, error) {
	db, err := openDatabase(cfg, protocol.Kinds)
	if err != nil {
		return nil, err
	}
	s, err := protocol.Open(context.Background(), db, protocol.Config{Window: cfg.Window, Clock: db.cfg.clock, Age: cfg.age, Logger: db.cfg.Logger})
	if err != nil {
		return nil, errors.Join(explain(db.cfg.Dir, err), db.abandon())
	}
	return &Store{s, db.directory}, nil
}

// openDirectory opens a directory, or makes it.
func openDirectory(cfg Config) (*directory, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("pebble store: %w", err)
	}
	files := cfg.FS
	if files == nil {
		files = privateFS{vfs.Default}
		dir, err := filepath.Abs(cfg.Dir) // the lock needs one name for each directory
		if err != nil {
			return nil, explain(cfg.Dir, err)
		}
		cfg.Dir = dir
	}
	if err := checkDir(files, cfg.Dir); err != nil {
		return nil, err
	}
	doom := &doom{dir: cfg.Dir, log: cfg.Logger, exit: cfg.Exit}
	d := &directory{cfg: cfg, fs: files, moments: moments{clock: cfg.clock}}
	d.ending, d.end = context.WithCancel(context.Background())
	p := newPauses(cfg.pause, d.ending.Done())
	d.health = newHealth(cfg.Dir, files, cfg.Logger, doom, p)
	if cfg.FS == nil {
		d.guard = newGuard(cfg.Dir)
		d.syncs.kept = d.guard.await
	}
	listener := d.health.listener()
	files, d.files = vfs.WithDiskHealthChecks(files, slowDisk, nil, listener.DiskSlow)
	opts := options(cfg, logFS{files, cfg.Dir, doom, d.guard, p}, logger{cfg.Logger, doom}, listener)
	err := look(cfg, *opts)
	if err == nil {
		if d.db, err = pebbledb.Open(cfg.Dir, opts); err != nil {
			err = explain(cfg.Dir, err)
		}
	}
	if err != nil {
		d.end()
		return nil, errors.Join(err, d.files.Close())
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.abandon())
	}
	doom.opened.Store(true)
	cfg.Logger.Info("store opened", "dir", cfg.Dir, "id", d.id, "disk_bytes", d.db.Metrics().DiskSpaceUsage())
	return d, nil
}

// slowDisk is how long a write may take before the store logs it.
const slowDisk = 5 * time.Second

// start reads the state that an open directory keeps in memory.
func (d *directory) start() error {
	if err := d.readMeta(); err != nil {
		return err
	}
	if err := d.removeCheckpoints(); err != nil {
		return explain(d.cfg.Dir, err)
	}
	if err := d.countRestore(); err != nil {
		return explain(d.cfg.Dir, err)
	}
	n, last, err := getCommits(d.db)
	if err != nil {
		return explain(d.cfg.Dir, err)
	}
	if n < last { // and somebody has removed the file of the commit count
		if err := d.db.Set(commitsKey, commitsRow(n, n), pebbledb.Sync); err != nil {
			return explain(d.cfg.Dir, err)
		}
	}
	d.commits.synced.Store(n)
	d.commits.last = n
	d.commits.written = -1
	kept, _, err := readCommitCount(d.fs, d.cfg.Dir)
	if err != nil {
		return err
	}
	d.moments.resume(kept.moment)
	if err := d.keepCommitCount(); err != nil {
		return err
	}
	if d.guard != nil {
		if err := d.guard.settle(); err != nil {
			return explain(d.cfg.Dir, err)
		}
	}
	return nil
}

// abandon closes a directory that was not opened to the end.
func (d *directory) abandon() error {
	d.end()
	d.guard.end()
	return errors.Join(d.db.Close(), d.files.Close())
}

// options gives a reason for each setting. The package's benchmarks measure them.
func options(cfg Config, files vfs.FS, log pebbledb.Logger, listener *pebbledb.EventListener) *pebbledb.Options {
	opts := &pebbledb.Options{
		FS:                 files,
		Merger:             merger,
		FormatMajorVersion: pebbledb.FormatValueSeparation,
		// Memtables take their memory from the cache, so it has room for two more: the one that is
		// written and the one being flushed. Otherwise blocks would have no room, and each read
		// would fetch the filters of all files from the disk.
		CacheSize: cfg.Cache + 2*int64(cfg.memTable),
		// A commit that may take half a memtable, by Pebble's estimate of 240 bytes a row, becomes a table of its own: level 0 fills up
		// with small ones. So the folds of 100,000 counters fit. In a larger list each insertion misses the processor's cache more often.
		MemTableSize:                cfg.memTable,
		MemTableStopWritesThreshold: 2 * mostMemTables, // never reached: see awaitRoom
		// Level 0 is compacted when it is 6 tables deep. Uniform folds rewrite everything below it each
		// time, so a lower limit costs writes. A higher one costs each read a filter per table.
		L0CompactionThreshold: 12,             // Pebble counts each table twice
		L0StopWritesThreshold: 2 * mostLevel0, // never reached either
		LBaseMaxBytes:         64 << 20,
		MaxOpenFiles:          500,
		BytesPerSync:          1 << 20,
		// Dropped markers give their space back within this time.
		FlushDelayDeleteRange: 10 * time.Second,
		CompactionConcurrencyRange: func() (int, int) {
			return 1, max(1, min(4, runtime.GOMAXPROCS(0)))
		},
		Logger:        log,
		EventListener: listener,
	}
	opts.TargetFileSizes[0] = 8 << 20
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return opts
}

// makeDir makes the directory and its parents, and syncs the parent of each new one. A synced file is
// lost if the name of its directory is not on disk.
func makeDir(files vfs.FS, dir string) error {
	var above []string
	for at := dir; ; at = files.PathDir(at) {
		if _, err := files.Stat(at); err == nil || at == files.PathDir(at) {
			break
		}
		above = append(above, files.PathDir(at))
	}
	if err := files.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	// A directory whose name is not synced is lost together with its content.
	for _, at := range above {
		if err := syncDir(files, at); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(files vfs.FS, dir string) error {
	d, err := files.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// checkDir makes the directory, and refuses a directory that contains anything but a database.
func checkDir(files vfs.FS, dir string) error {
	if err := makeDir(files, dir); err != nil {
		return explain(dir, err)
	}
	names, err := files.List(dir)
	if err != nil {
		return explain(dir, err)
	}
	for _, name := range names {
		if !ours(name) {
			return fmt.Errorf("data directory %s contains %q, which is not a file of countmill: name an empty directory, or one that countmill made", dir, name)
		}
	}
	desc, err := pebbledb.Peek(dir, files)
	if err != nil {
		return explain(dir, err)
	}
	if desc.Exists && desc.FormatMajorVersion > pebbledb.FormatNewest {
		return newer(dir)
	}
	return nil
}

// ours reports whether a file of this name can belong to a database. A volume's own lost+found passes
// too.
func ours(name string) bool {
	for _, prefix := range []string{"marker.", "MANIFEST-", "OPTIONS-", "temporary.", "CURRENT", checkpointPrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch filepath.Ext(name) {
	case ".sst", ".log", ".blob", ".dbtmp":
		return true
	}
	return name == commitCountFile || name == copyFile || name == commitCountTemp || name == "LOCK" || name == "lost+found" || name == "archive"
}

// format is that of all keys and values.
const format = 4

var metaKey = []byte("\x00countmill")

// meta is the meta record of a directory, in JSON. Its key and its field format mean the same in every version. A program refuses a
// directory of another format than its own.
type meta struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Restores is how often the directory was restored from a backup.
	Restores int64 `json:"restores,omitempty"`
}

// readMeta refuses a database of another program, and makes the meta record of a new one.
func (d *directory) readMeta() error {
	m, err := getMeta(d.cfg.Dir, d.db)
	if err == nil && m.ID == "" {
		m, err = d.newMeta()
	}
	d.id, d.restores = m.ID, m.Restores
	return err
}

// getMeta returns the meta record, or a zero meta if there is none.
func getMeta(dir string, db *pebbledb.DB) (m meta, err error) {
	value, err := read(db, metaKey)
	if err != nil {
		return m, explain(dir, err)
	}
	if value == nil {
		return m, nil
	}
	err = json.Unmarshal(value, &m)
	switch {
	case err == nil && m.Format > format:
		return m, newer(dir)
	case err == nil && 0 < m.Format && m.Format < format:
		return m, fmt.Errorf("data directory %s was written by countmill before its first release (format %d, this is %d): name an empty directory", dir, m.Format, format)
	case err != nil || m.Format < 1 || m.ID == "":
		return m, fmt.Errorf("data directory %s is damaged: its meta record is %q: restore a backup: %w", dir, value, err)
	}
	return m, nil
}

// newMeta makes an empty database a countmill database.
func (d *directory) newMeta() (m meta, _ error) {
	if err := d.checkEmpty(); err != nil {
		return m, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	m = meta{Format: format, ID: hex.EncodeToString(id[:]), Created: time.Now().UTC()}
	return m, d.setMeta(m)
}

// setMeta is called while the directory is being opened.
func (d *directory) setMeta(m meta) error {
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := d.db.Set(metaKey, value, pebbledb.Sync); err != nil {
		return explain(d.cfg.Dir, err)
	}
	return nil
}

// checkEmpty refuses a database that contains another program's keys. A process that was killed before
// it wrote the meta record leaves a database without keys, which is accepted.
func (d *directory) checkEmpty() error {
	iter, err := d.db.NewIter(nil)
	if err != nil {
		return explain(d.cfg.Dir, err)
	}
	empty := !iter.First()
	if err := iter.Close(); err != nil {
		return explain(d.cfg.Dir, err)
	}
	if !empty {
		return foreign(d.cfg.Dir)
	}
	return nil
}

func foreign(dir string) error {
	return fmt.Errorf("data directory %s is a Pebble database of another program: name an empty directory, or one that countmill made", dir)
}

func newer(dir string) error {
	return fmt.Errorf("data directory %s was written by a newer version of countmill: run that version or a later one", dir)
}

// explain adds the directory and the remedy to an error of Pebble or of the file system.
func explain(dir string, err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, syscall.EAGAIN), strings.Contains(text, "lock held by current process"):
		return fmt.Errorf("data directory %s is in use by another process: stop that one, or name another directory", dir)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("data directory %s is on a full disk: free space there: %w", dir, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("data directory %s cannot be made, because a file has that name: name another directory", dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("data directory %s cannot be written: give this user the right to write there, or name another directory: %w", dir, err)
	case otherOptions(text):
		return fmt.Errorf("%w: %w", foreign(dir), err)
	case strings.Contains(text, "format major version"):
		return fmt.Errorf("%w: %w", newer(dir), err)
	case pebbledb.IsCorruptionError(err), incomplete(text):
		return fmt.Errorf("data directory %s is damaged: restore a backup: %w", dir, err)
	}
	return fmt.Errorf("data directory %s: %w", dir, err)
}

// otherOptions reports whether Pebble's error text says that another program made the database.
func otherOptions(text string) bool {
	return strings.Contains(text, "merger name from file") || strings.Contains(text, "comparer name from file")
}

// incomplete reports whether Pebble's error text says that a file is missing or too short: a table, the
// manifest, or the marker of the format. Pebble exports no errors for these cases.
func incomplete(text string) bool {
	for _, says := range []string{"unknown to the objstorage provider", "object size mismatch", "could not open manifest file", "is not pristine"} {
		if strings.Contains(text, says) {
			return true
		}
	}
	return false
}
