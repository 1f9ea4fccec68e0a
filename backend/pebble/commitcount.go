package pebble

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/store/engine"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The commit count makes lost commits visible. Pebble takes damage near the end of its manifest, or of
// its newest log, for a write that a loss of power interrupted. It then opens the state before it: days
// of folds can be gone without an error. So each synced commit adds 1 to a key, and a file beside
// Pebble's has their number and the last moment (see moments). Check writes that file, as do Open and
// Close. A directory with fewer commits than the file says has lost synced commits.
//
// Damage to the manifest can also lose some commits and keep later ones. So each commit has a number, too, in the
// order of the log. A loss of power leaves the first n commits; if the largest number is larger, others are gone.
//
// It does not protect from anyone who removes the file too.
const (
	commitCountFile = "countmill.seal"
	commitCountTemp = commitCountFile + ".tmp"
)

// commitCountEvery is the shortest time between two writes by Check: /readyz may be called often.
const commitCountEvery = time.Second

// mostAhead is how far moments may be ahead of the clock before the store logs it, once.
const mostAhead = time.Minute

var commitsKey = []byte("\x00countmill-commits")

// commits has the number of synced commits, and the values that were last written to the file.
type commits struct {
	synced atomic.Int64

	applying sync.Mutex // numbers have the order of the log
	last     int64      // the number of the last commit

	mu      sync.Mutex
	written int64
	moment  time.Time // the moment in the file
	at      time.Time
	warned  bool // whether it was logged that moments are ahead of the clock
}

// apply makes a batch visible. wait returns when it is synced, and counts it. Call awaitRoom before.
func (d *directory) apply(b *pebbledb.Batch) (wait func() error, err error) {
	c := &d.commits
	c.applying.Lock()
	defer c.applying.Unlock()
	c.last++
	if err := b.Merge(commitsKey, commitsRow(1, c.last), nil); err != nil {
		return nil, err
	}
	d.unseen.Add(int64(b.Len()))
	synced, err := d.syncs.apply(d.db, b)
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := synced(); err != nil {
			return err
		}
		c.synced.Add(1)
		return nil
	}, nil
}

// applySoft makes a batch visible that need not survive a crash. It is not counted.
func (d *directory) applySoft(b *pebbledb.Batch) error {
	d.unseen.Add(int64(b.Len()))
	return d.db.Apply(b, pebbledb.NoSync)
}

// commitsRow adds n commits, of which the largest number is last.
func commitsRow(n, last int64) []byte {
	return term{id: 2, op: raise, floor: last}.append(term{id: 1, by: engine.IntOf(n)}.append(nil))
}

// getCommits returns how many commits there are, and the largest of their numbers: the two fields of a row of Sums.
func getCommits(from pebbledb.Reader) (n, last int64, err error) {
	value, err := read(from, commitsKey)
	if value == nil || err != nil {
		return 0, 0, err
	}
	var r engine.Row
	if fill(&r, engine.Sums, value, []engine.FieldID{engine.All}, nil); r.Bad != "" {
		return 0, 0, errDamaged
	}
	return r.Int64(1), r.Int64(2), nil
}

// keepCommitCount writes the number of commits and the last moment, unless the file has them already.
func (d *directory) keepCommitCount() error {
	d.commits.mu.Lock()
	defer d.commits.mu.Unlock()
	n, last := d.commits.synced.Load(), d.moments.newest()
	if n == d.commits.written && last.Equal(d.commits.moment) {
		return nil
	}
	if err := d.guard.check(); err != nil { // the path may name another database's file now
		return err
	}
	if err := writeCommitCount(d.fs, d.cfg.Dir, commitCount{d.id, n, last}); err != nil {
		return explain(d.cfg.Dir, err)
	}
	d.commits.written, d.commits.moment, d.commits.at = n, last, time.Now()
	if ahead := last.Sub(d.cfg.clock()); ahead > mostAhead && !d.commits.warned {
		d.commits.warned = true
		d.cfg.Logger.Warn("the times of totals are ahead of the machine's clock, which was further ahead before: they never go back",
			"dir", d.cfg.Dir, "last", last, "ahead", ahead.Round(time.Second))
	}
	return nil
}

// A commitCount is the content of the file.
type commitCount struct {
	id      string // the database's id
	commits int64
	moment  time.Time // the last moment of a view or a reset
}

func (x commitCount) encode() string {
	text := fmt.Sprintf("%s %d %d", x.id, x.commits, x.moment.UnixMicro())
	return fmt.Sprintf("%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// writeCommitCount replaces the file in one step, so that a loss of power leaves the old or the new
// one.
func writeCommitCount(files vfs.FS, dir string, x commitCount) error {
	temp := files.PathJoin(dir, commitCountTemp)
	f, err := files.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, x.encode())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := files.Rename(temp, files.PathJoin(dir, commitCountFile)); err != nil {
		return err
	}
	return syncDir(files, dir)
}

// readCommitCount finds no file in a new directory.
func readCommitCount(files vfs.FS, dir string) (x commitCount, found bool, err error) {
	name := files.PathJoin(dir, commitCountFile)
	f, err := files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return x, false, nil
	}
	if err != nil {
		return x, false, explain(dir, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err = errors.Join(err, f.Close()); err != nil {
		return x, false, explain(dir, err)
	}
	var moment int64
	_, err = fmt.Sscanf(string(text), "%s %d %d", &x.id, &x.commits, &moment)
	x.moment = time.UnixMicro(moment).UTC()
	if err != nil || x.encode() != string(text) {
		return x, false, fmt.Errorf("data directory %s is damaged: %s contains %.100q: restore a backup, or remove that file if nothing else is damaged", dir, commitCountFile, text)
	}
	return x, true, nil
}

// look opens a directory, writes its log to tables unless opts.ReadOnly, and closes it. It refuses a directory that has lost commits,
// and leaves it as it was. Pebble removes no file meanwhile, because a damaged manifest may have forgotten files that are needed. The empty
// log of this opening goes. To read it, the next one would flush an empty memtable, and wait for the compaction that follows.
func look(cfg Config, opts pebbledb.Options) error {
	kept, found, err := readCommitCount(opts.FS, cfg.Dir)
	if err != nil {
		return err
	}
	desc, err := pebbledb.Peek(cfg.Dir, opts.FS)
	if err != nil {
		return explain(cfg.Dir, err)
	}
	files := opts.FS
	if !desc.Exists {
		names, err := files.List(cfg.Dir)
		if err != nil {
			return explain(cfg.Dir, err)
		}
		// Pebble would make a new database here, and remove the tables.
		if found || slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".sst") }) {
			return fmt.Errorf("data directory %s is damaged: the file marker.manifest.* is missing: put it back, or restore a backup", cfg.Dir)
		}
		return nil
	}
	lock, err := pebbledb.LockDirectory(cfg.Dir, files)
	if err != nil {
		return explain(cfg.Dir, err)
	}
	defer lock.Close()
	before, err := files.List(cfg.Dir)
	if err != nil {
		return explain(cfg.Dir, err)
	}
	opts.FS, opts.Lock, opts.DisableAutomaticCompactions = keepFS{files}, lock, true
	// At this size a memtable's list fits a CPU's cache, and Pebble keeps a larger batch as it is instead of copying it into the list.
	opts.MemTableSize = min(opts.MemTableSize, 1<<20)
	db, err := pebbledb.Open(cfg.Dir, &opts)
	switch {
	case err == nil:
		if err = compare(cfg, db, kept, found); err != nil {
			_ = db.Close() // its files go
		} else if err = errors.Join(db.Close(), removeOthers(files, cfg.Dir, ".log", before)); err != nil {
			err = explain(cfg.Dir, err)
		}
	case found && otherOptions(err.Error()):
		err = lost(cfg.Dir, kept, err.Error())
	default:
		err = explain(cfg.Dir, err)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, removeOthers(files, cfg.Dir, "", before))
}

// removeOthers removes the files with this ending that are not to be kept. Markers are the last names, and go first, for good: Pebble refuses a directory whose
// marker names a file that is gone.
func removeOthers(files vfs.FS, dir, ending string, keep []string) error {
	all, err := files.List(dir)
	slices.Sort(all)
	for _, name := range slices.Backward(all) {
		if err == nil && strings.HasSuffix(name, ending) && !slices.Contains(keep, name) {
			err = errors.Join(files.Remove(files.PathJoin(dir, name)), syncDir(files, dir))
		}
	}
	return err
}

// A keepFS removes no file.
type keepFS struct{ vfs.FS }

func (keepFS) Remove(string) error { return nil }

func compare(cfg Config, db *pebbledb.DB, kept commitCount, found bool) error {
	m, err := getMeta(cfg.Dir, db) // first: it refuses other formats
	if err != nil {
		return err
	}
	n, last, err := getCommits(db)
	if err != nil {
		return explain(cfg.Dir, err)
	}
	switch {
	case found && m.ID != kept.id:
		return lost(cfg.Dir, kept, fmt.Sprintf("its files are of database %q", m.ID))
	case n < kept.commits:
		return lost(cfg.Dir, kept, fmt.Sprintf("%d of %d commits that were on disk are gone", kept.commits-n, kept.commits))
	case found && n < last:
		return lost(cfg.Dir, kept, fmt.Sprintf("%d of %d commits are gone, and later ones are not", last-n, last))
	case !found && n > 0:
		cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "data directory has no commit count: the loss of commits would not be noticed",
			slog.String("dir", cfg.Dir), slog.String("file", commitCountFile))
	}
	return nil
}

func lost(dir string, kept commitCount, what string) error {
	return fmt.Errorf("data directory %s is damaged: by %s it is database %q with %d commits, but %s: restore a backup, or remove %[2]s to continue with the remaining data",
		dir, commitCountFile, kept.id, kept.commits, what)
}
