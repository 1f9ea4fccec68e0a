package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/units"
	"github.com/countmill/countmill/store"
)

const (
	// lookEvery is how old the number of free bytes may be. A guess: a disk that takes 1 GB/s
	// takes a fifth of the default --min-free meanwhile.
	lookEvery = 200 * time.Millisecond

	// Without --min-free, at least the smaller of these is to stay free: of a small disk a part.
	// Below smallDisk nothing is, as tables and logs alone may take that.
	minFree, minFreePart = 1 << 30, 20
	smallDisk            = 4 << 30

	// retryStorage is how long clients are asked to wait. A guess: a person has to act.
	retryStorage = 30 * time.Second
)

// A space watches the free bytes of the file system that the store is on. Below min it refuses
// increments, below half of min also folds, until an eighth of min more is free.
type space struct {
	usage func() (free, size uint64, err error)
	min   uint64 // 0: refuse nothing
	log   *slog.Logger

	next    atomic.Int64 // when to look again, Unix nanoseconds
	refused atomic.Int64 // requests

	mu        sync.Mutex
	free      uint64
	low       bool // nothing is refused yet: the mark of the alert CountmillDiskLow
	noPuts    bool
	noFolds   bool
	unreached bool // usage returned an error
}

// newSpace makes a space. asked is Config.MinFree: 0 is the default, negative is off.
func newSpace(usage func() (free, size uint64, err error), asked int, log *slog.Logger) *space {
	s := &space{usage: usage, log: log}
	_, size, err := usage()
	switch {
	case asked > 0:
		s.min = uint64(asked)
	case asked == 0 && err == nil && size >= smallDisk:
		s.min = min(minFree, size/minFreePart)
	}
	s.look(time.Now())
	return s
}

// look asks for the free bytes, if that is long ago. Calls at the same time do not wait.
func (s *space) look(now time.Time) {
	next := s.next.Load()
	if now.UnixNano() < next && next-now.UnixNano() <= int64(lookEvery) || !s.next.CompareAndSwap(next, now.Add(lookEvery).UnixNano()) {
		return
	}
	free, _, err := s.usage()
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed := err != nil; failed != s.unreached {
		if s.unreached = failed; failed {
			s.log.LogAttrs(context.Background(), slog.LevelWarn, "free disk space is not known, so --min-free does nothing", slog.Any("err", err))
		}
	}
	if err != nil {
		s.noPuts, s.noFolds = false, false
		return
	}
	s.free = free
	s.warnLocked()
	s.turnLocked(&s.noPuts, s.min, "increments")
	s.turnLocked(&s.noFolds, s.min/2, "folds")
}

// warnLocked logs once that less than twice the minimum is free, until that is over.
func (s *space) warnLocked() {
	was := s.low
	if s.low = s.free < 2*s.min || was && s.free < 2*s.min+s.min/8; s.low && !was {
		s.log.LogAttrs(context.Background(), slog.LevelWarn, "the disk is filling: below --min-free increments are refused",
			slog.Uint64("free_bytes", s.free), slog.Uint64("min_free_bytes", s.min))
	}
}

// turnLocked sets whether something is refused, and logs a change.
func (s *space) turnLocked(refused *bool, below uint64, what string) {
	was := *refused
	*refused = s.free < below || was && s.free < below+s.min/8
	attrs := []slog.Attr{slog.Uint64("free_bytes", s.free), slog.Uint64("min_free_bytes", s.min)}
	switch {
	case *refused && !was:
		s.log.LogAttrs(context.Background(), slog.LevelError, "the disk is nearly full: "+what+" are refused until there is space", attrs...)
	case was && !*refused:
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "the disk has space again: "+what+" are taken", attrs...)
	}
}

// state returns the free bytes, and whether they are too few for increments and for folds.
func (s *space) state() (free uint64, noPuts, noFolds bool) {
	s.look(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free, s.noPuts, s.noFolds
}

// admit refuses increments while there is little space.
func (s *space) admit() error {
	if s.min == 0 {
		return nil
	}
	if _, refused, _ := s.state(); !refused {
		return nil
	}
	s.refused.Add(1)
	return httpserver.NewProblem(http.StatusInsufficientStorage, "insufficient-storage", "insufficient storage",
		"the disk of this server is nearly full (--min-free): nothing of this request was done, repeat it when there is space").RetryAfter(retryStorage)
}

// degraded is the reason for /readyz while increments are refused, else empty.
func (s *space) degraded() string {
	if s.min == 0 {
		return ""
	}
	free, refused, _ := s.state()
	if !refused {
		return ""
	}
	return fmt.Sprintf("increments are refused, as %dMiB of its disk are free and --min-free is %s", free>>20, units.FormatSize(int(s.min)))
}

// A roomyStore refuses folds while there is very little space. The aggregator keeps its
// messages and tries again.
type roomyStore struct {
	store.Store
	space *space
}

// Fold applies the commit, or refuses it as a whole.
func (s roomyStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if free, _, refused := s.space.state(); refused {
		return store.CommitResult{}, fmt.Errorf("%w: the disk is nearly full: %dMiB are free, which is below half of --min-free", store.ErrDeployment, free>>20)
	}
	return s.Store.Fold(ctx, c)
}

func spaceSamples(s *space) []sample {
	free, _, _ := s.state()
	return []sample{
		gauge("countmill_store_free_bytes", "Bytes free on the file system of the store.", float64(free)),
		gauge("countmill_store_min_free_bytes", "Below so many free bytes increments are refused; 0: never.", float64(s.min)),
		counter("countmill_storage_refused_requests_total", "Requests for increments refused because the disk is nearly full.", s.refused.Load()),
	}
}
