package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Goal says when a run is long enough: when it has lasted Least and has Increments, or when it has
// lasted Most.
type Goal struct {
	Increments  int64
	Least, Most time.Duration
}

// A Run is one measurement. A system calls Walk, or Foreign, once.
type Run struct {
	*Load
	Goal Goal

	stop    atomic.Bool
	workers []worker
	chunk   int
	begin   time.Time

	mu         sync.Mutex // guards the fields below
	notes      map[string]float64
	increments int64         // of a foreign generator
	elapsed    time.Duration // of a foreign generator
	foreign    bool
}

// A worker walks the order on its own. It fills a cache line, so that counting does not make workers
// wait for each other.
type worker struct {
	start  int
	walked atomic.Int64
	_      [48]byte
}

// NewRun returns a run that has not begun.
func NewRun(l *Load, goal Goal) *Run {
	return &Run{Load: l, Goal: goal, notes: make(map[string]float64)}
}

// Walk makes workers walk the order until the goal is reached, each from a place of its own, chunk
// increments a step; chunk must divide the order's length. do gets order[at:at+chunk] and counts its
// increments. The clock starts here.
func (r *Run) Walk(ctx context.Context, workers, chunk int, do func(ctx context.Context, worker, at int, order []uint32) error) error {
	if len(r.Order)%chunk != 0 {
		return fmt.Errorf("chunks of %d do not divide an order of %d", chunk, len(r.Order))
	}
	r.chunk = chunk
	r.workers = make([]worker, workers)
	chunks := len(r.Order) / chunk
	for i := range r.workers {
		r.workers[i].start = i * chunks / workers * chunk
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.begin = time.Now()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(ctx)
	}()
	group, walking := errgroup.WithContext(ctx)
	for i := range r.workers {
		group.Go(func() error { return r.walk(walking, i, do) })
	}
	err := group.Wait()
	cancel()
	<-watched
	return err
}

func (r *Run) walk(ctx context.Context, i int, do func(ctx context.Context, worker, at int, order []uint32) error) error {
	w := &r.workers[i]
	for at := w.start; !r.stop.Load(); {
		if err := do(ctx, i, at, r.Order[at:at+r.chunk]); err != nil {
			return err
		}
		w.walked.Add(int64(r.chunk))
		if at += r.chunk; at == len(r.Order) {
			at = 0
		}
	}
	return nil
}

// watch stops the walk.
func (r *Run) watch(ctx context.Context) {
	defer r.stop.Store(true)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !r.reached() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *Run) reached() bool {
	elapsed := time.Since(r.begin)
	return elapsed >= r.Goal.Most || elapsed >= r.Goal.Least && r.Walked() >= r.Goal.Increments
}

// Walked returns how many increments have been walked so far.
func (r *Run) Walked() int64 {
	var n int64
	for i := range r.workers {
		n += r.workers[i].walked.Load()
	}
	return n
}

// Stop stops the clock. Call it when everything that was walked is acknowledged.
func (r *Run) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.foreign {
		r.increments, r.elapsed = r.Walked(), time.Since(r.begin)
	}
}

// Foreign records the increments and the time of a generator outside this program. It may be called
// several times, and adds up.
func (r *Run) Foreign(increments int64, elapsed time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.foreign = true
	r.increments += increments
	r.elapsed += elapsed
}

// Done returns how many increments were acknowledged, and in which time.
func (r *Run) Done() (int64, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.increments, r.elapsed
}

// Note keeps a number for the report.
func (r *Run) Note(what string, n float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes[what] = n
}

// Notes returns these numbers.
func (r *Run) Notes() map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes
}

// Want returns the right total of each name after a Walk.
func (r *Run) Want() []int64 {
	want := make([]int64, len(r.Names))
	for i := range r.workers {
		w := &r.workers[i]
		walked := int(w.walked.Load())
		rounds, rest := walked/len(r.Order), walked%len(r.Order)
		if rounds > 0 {
			for _, name := range r.Order {
				want[name] += int64(rounds)
			}
		}
		for j := range rest {
			want[r.Order[(w.start+j)%len(r.Order)]]++
		}
	}
	return want
}

// Check compares every name's total with the sent increments.
func (r *Run) Check(ctx context.Context, totals func(ctx context.Context, names []string) ([]int64, error)) error {
	return Check(ctx, r.Names, r.Want(), totals)
}

// Check compares the total of every name with the wanted one. totals returns the totals of some names,
// 0 for an unknown one; several goroutines call it at once.
func Check(ctx context.Context, all []string, want []int64, totals func(ctx context.Context, names []string) ([]int64, error)) error {
	const atOnce, some = 4, 1000
	var wrong differences
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for from := 0; from < len(want); from += some {
		names, want := all[from:min(from+some, len(want))], want[from:min(from+some, len(want))]
		group.Go(func() error {
			got, err := totals(ctx, names)
			if err != nil {
				return fmt.Errorf("read totals: %w", err)
			}
			if len(got) != len(names) {
				return fmt.Errorf("asked for %d totals, got %d", len(names), len(got))
			}
			for i := range names {
				wrong.compare(names[i], got[i], want[i])
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return wrong.err()
}

// ErrWrong means that a system did not count the increments that it acknowledged.
var ErrWrong = errors.New("totals are wrong")

type differences struct {
	mu        sync.Mutex
	n         int
	name      string
	got, want int64
	sum, sent int64
}

func (d *differences) compare(name string, got, want int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sum += got
	d.sent += want
	if got != want {
		d.n, d.name, d.got, d.want = d.n+1, name, got, want
	}
}

func (d *differences) err() error {
	switch {
	case d.n > 0:
		return fmt.Errorf("%w: %d counters differ, one of them %s: got %d, want %d; in all got %d, want %d", ErrWrong, d.n, d.name, d.got, d.want, d.sum, d.sent)
	case d.sent == 0:
		return fmt.Errorf("%w: nothing was sent", ErrWrong)
	}
	return nil
}
