package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/countmill/countmill/backend"
)

// A Store can be copied while it is in use. backend.Disk has the promises.
type Store interface {
	Dir() string
	ID() string
	Checkpoint(ctx context.Context, use func(ctx context.Context, dir string) error) error
}

// Config says where backups go, and when.
type Config struct {
	// Root is the place below which backups may be written, and Open opens it.
	Root *url.URL
	Open func(ctx context.Context, create bool) (backend.Bucket, error)
	// Every is the time between two regular backups, which go to Root. 0: there are none.
	Every time.Duration
	// Keep is how long regular backups are kept; the newest is kept for ever. 0: all are kept.
	Keep time.Duration
	// Rate bounds the bytes that are read from the store's disk in a second, before and while they are
	// sent. Required.
	Rate   int
	Logger *slog.Logger
}

// A Backup describes a finished backup.
type Backup struct {
	ID  string
	URL string // the target's
	// BeganAt: everything that was accepted before is in the backup. TakenAt: nothing that was accepted
	// afterwards is.
	BeganAt, TakenAt time.Time
	// Bytes is the size of the backup, and Sent the bytes that its target did not have.
	Bytes, Sent int64
}

// Stats are counts since the start, and the last backup.
type Stats struct {
	Taken, Failures, Sent int64
	// Last is BeganAt of the newest backup of the root that is known. Zero: none is.
	Last time.Time
	// Every is that of Config.
	Every time.Duration
}

// A Keeper takes backups of a store, one at a time. All methods are safe for concurrent use.
type Keeper struct {
	cfg   Config
	store Store
	owner string

	taking chan struct{} // has one element while a backup is under way
	sums   sums          // guarded by taking
	swept  time.Time     // guarded by taking
	limit  *rate.Limiter

	mu     sync.Mutex
	stats  Stats
	looked bool // whether Last has the newest of the root
	// regular is BeganAt of the last regular backup. Until there is one in this process, it is the newest of the root.
	regular time.Time
}

// patience is how long a backup waits for another of the same process: a small one ends within it.
const patience = 5 * time.Second

// New opens nothing yet. It refuses a root that is in or above the store's directory.
func New(store Store, cfg Config) (*Keeper, error) {
	if err := checkRoot(cfg.Root, store.Dir()); err != nil {
		return nil, err
	}
	return &Keeper{cfg: cfg, store: store, taking: make(chan struct{}, 1), owner: owner(store), limit: newLimit(cfg.Rate), stats: Stats{Every: cfg.Every}}, nil
}

// owner is the same for each process on the store's directory, of which there is one at a time.
func owner(store Store) string {
	host, _ := os.Hostname() // without one, directory and id are enough nearly everywhere
	dir, err := filepath.Abs(store.Dir())
	if err != nil {
		dir = store.Dir()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", host, dir, store.ID()))
	return hex.EncodeToString(sum[:16])
}

// Stats returns the counts.
func (k *Keeper) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Backup takes a backup to a target: a path below the root, a URL that is the root or below it, or "" for
// the root. An error that matches ErrTarget, ErrOther or ErrGone refuses the target, and ErrBusy means that another
// backup is under way. After any other error there may be a backup; if there is, it is whole.
func (k *Keeper) Backup(ctx context.Context, to string) (Backup, error) {
	at, err := below(k.cfg.Root, to)
	if err != nil {
		return Backup{}, err
	}
	return k.take(ctx, at, nil)
}

// take takes a backup, and calls then before another process may write to the target.
func (k *Keeper) take(ctx context.Context, at string, then func(context.Context, target, time.Time)) (b Backup, err error) {
	if !k.begin(ctx) {
		return b, ErrBusy
	}
	defer func() { <-k.taking }()
	defer func() { k.count(ctx, at, then != nil, b, err) }()
	bucket, err := k.cfg.Open(ctx, true)
	if err != nil {
		return b, err
	}
	defer func() { _ = bucket.Close() }() // everything in it is durable
	t := target{bucket, at}
	err = t.alone(ctx, k.owner, func(ctx context.Context, now time.Time) error {
		if err := k.checkOwn(ctx, bucket, at); err != nil {
			return err
		}
		if b, err = k.copyTo(ctx, t); err == nil && then != nil {
			then(ctx, t, now)
		}
		return err
	})
	b.URL = k.cfg.Root.JoinPath(at).String()
	return b, err
}

// begin reports whether no other backup of this process is under way, at once or within patience.
func (k *Keeper) begin(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case k.taking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// copyTo sends a copy of the store to the target.
func (k *Keeper) copyTo(ctx context.Context, t target) (b Backup, err error) {
	s := shipment{database: k.store.ID(), began: time.Now(), sums: &k.sums, limit: k.limit}
	err = k.store.Checkpoint(ctx, func(ctx context.Context, dir string) error {
		s.dir, s.taken = dir, time.Now()
		b, err = t.take(ctx, s)
		return err
	})
	if err == nil {
		k.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "backup taken", slog.String("id", b.ID), slog.String("target", t.path),
			slog.Int64("bytes", b.Bytes), slog.Int64("sent_bytes", b.Sent), slog.Duration("took", time.Since(s.began)))
	}
	return b, err
}

func (k *Keeper) count(ctx context.Context, at string, regular bool, b Backup, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stats.Sent += b.Sent
	switch {
	case err == nil:
		k.stats.Taken++
		if at == "" {
			k.stats.Last = b.BeganAt
		}
		if regular {
			k.regular = b.BeganAt
		}
	case !errors.Is(err, ErrBusy) && !errors.Is(ctx.Err(), context.Canceled): // an err of Canceled can be a lost mark
		k.stats.Failures++
	}
}
