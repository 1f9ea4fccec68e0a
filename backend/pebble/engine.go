package pebble

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store/engine"
)

// A database is the engine for one machine: rows in an open directory.
//
// A commit is one batch of the write-ahead log. It is applied under a lock, and synced outside of it, so that commits and
// transactions share their syncs. A change of Sums is a merge operand: it reads nothing. Rows of Once are grouped by
// their Due into epochs of four days, and a whole epoch is dropped at once.
//
// An applied batch is visible before it is synced. A call that writes nothing answers when the commits that it may have seen
// are synced. A call that writes needs no such wait: its own batch is behind theirs in the log.
type database struct {
	*directory
	keyspace
	name string // of this opening

	// gate is held for reading while a commit is applied, and for writing while a transaction compares the rows that it
	// has read and is applied. Nobody waits for the disk's sync with it.
	gate sync.RWMutex
	// checking is held together with gate by commits that need rows to be as they are, or that are not additions alone.
	checking sync.Mutex
	applied  atomic.Uint64 // rises under gate after each batch
	lots     lots          // of transactions
	writes   sync.Pool     // of *write
	size     atomic.Int64  // of the last commit, and some more

	expiring sync.Mutex
	swept    map[engine.KindID]int64 // the horizon of the last look at all rows; guarded by expiring

	// mu is held while a snapshot is taken and while epochs change.
	mu        sync.Mutex
	epochs    [][]epoch // that have rows, by kind, ascending; replaced and never changed
	snapshots map[*snapshot]struct{}
	last      *snapshot // of transactions
	scans     map[*scan]struct{}
}

// openDatabase opens the directory with rows of these kinds, or makes it. Config.Window does not count.
func openDatabase(cfg Config, kinds engine.Kinds) (*database, error) {
	d, err := openDirectory(cfg)
	if err != nil {
		return nil, err
	}
	e := &database{
		directory: d, keyspace: newKeyspace(cfg.Namespace, kinds), name: rand.Text(), epochs: make([][]epoch, len(kinds)),
		swept: make(map[engine.KindID]int64), snapshots: make(map[*snapshot]struct{}), scans: make(map[*scan]struct{}),
	}
	e.lots.ended.L = &e.lots.mu
	if err := e.loadEpochs(); err != nil {
		return nil, errors.Join(explain(d.cfg.Dir, err), d.abandon())
	}
	return e, nil
}

var _ engine.Engine = (*database)(nil)

// maxKeys bounds the time of a read and the size of its answer. Pebble needs no such limit.
const maxKeys = 1000

// Limits says that one commit at a time is best: it uses the whole disk, and waiting changes make the next one larger. A copied
// directory or a restored backup has other rows than the original, so each opening has its own name.
func (e *database) Limits() engine.Limits {
	return engine.Limits{Name: e.name, Keys: maxKeys, Commits: 1, FreeUpserts: true, MaxThenAdd: true, Exclusive: true, CertainOutcome: true, Conditions: true}
}

// Check writes the commit count to its file now and then.
func (e *database) Check(ctx context.Context, with []engine.Key) (engine.Checked, error) {
	if err := e.enter(); err != nil {
		return engine.Checked{}, err
	}
	defer e.closing.RUnlock()
	if err := cmp.Or(e.guard.check(), e.health.unreadable()); err != nil {
		return engine.Checked{}, err
	}
	v := e.View()
	defer v.Close()
	rows, err := v.Get(ctx, with, engine.All)
	if err != nil {
		return engine.Checked{}, err
	}
	err = e.kept()
	if errors.Is(err, engine.ErrOtherDatabase) {
		return engine.Checked{}, err
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", engine.ErrReadOnly, err)
	}
	return engine.Checked{Restores: e.restores, Rows: rows}, err
}

// isGuarded returns an error if the directory is missing.
func (e *database) isGuarded() error {
	if err := e.guard.check(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrDeployment, err)
	}
	return nil
}

// Moment and Resume are those of the directory.
func (e *database) Moment() time.Time { return e.moments.next() }

// Resume makes all later moments come after at.
func (e *database) Resume(at time.Time) { e.moments.resume(at) }

// Close waits for running calls, closes scans and views that are open, and releases the directory.
func (e *database) Close() error {
	return e.closeAfter(func() {
		for s := range e.scans {
			_ = s.iter.Close()
		}
		for s := range e.snapshots {
			_ = s.db.Close()
		}
	})
}

// value returns the value of a row, or nil if there is none. key is memory for its keys.
func (e *database) value(from pebbledb.Reader, epochs [][]epoch, k *engine.Key, key *[]byte) ([]byte, error) {
	if e.kinds[k.Kind].Class != engine.Once {
		*key = e.row((*key)[:0], k)
		return read(from, *key)
	}
	// In every epoch: the same row may be inserted with another Due.
	in := epochs[k.Kind]
	for i := len(in) - 1; i >= 0; i-- {
		*key = append(e.epoch((*key)[:0], k.Kind, in[i]), k.Name...)
		value, err := read(from, *key)
		if value != nil || err != nil {
			return value, err
		}
	}
	return nil, nil
}

func read(from pebbledb.Reader, key []byte) ([]byte, error) {
	value, closer, err := from.Get(key)
	if errors.Is(err, pebbledb.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(value)), value...), closer.Close() // never nil
}
