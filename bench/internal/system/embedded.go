package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/embedded"
	"github.com/countmill/countmill/publisher"
)

func embeddedSystems() []System {
	const ack = "Flush has returned: folded into Pebble, synced to disk, counted exactly once, in the total"
	const how = "publisher, in-process bus, aggregator and pebble in one process, with the settings of `countmill up`; clock from the first Add to the return of Flush"
	return []System{
		{
			Name: "countmill/name", Ack: ack, How: how + "; DB.Add by name from as many goroutines as there are CPUs", Loads: names,
			Family: "countmill/name", Against: "redis/pipelined", Version: goVersion,
			Open: func(_ context.Context, at Place) (Instance, error) { return openEmbedded(at, false) },
		},
		{
			Name: "countmill/handle", Ack: ack, How: how + "; Counter.Add by handle, likewise", Loads: names,
			Family: "countmill/handle", Against: "redis/pipelined", Version: goVersion,
			Open: func(_ context.Context, at Place) (Instance, error) { return openEmbedded(at, true) },
		},
	}
}

func goVersion() (string, error) { return "countmill of this tree, " + runtime.Version(), nil }

// Embedded is countmill in this process.
type Embedded struct{ *embedded.DB }

// OpenEmbedded opens a directory with the settings of `countmill up`. Close it.
func OpenEmbedded(dir string) (*Embedded, error) {
	db, err := embedded.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Embedded{db}, nil
}

// Close ends it. The next system should find the machine as this one did.
func (e *Embedded) Close() {
	_ = e.DB.Close()
	debug.FreeOSMemory()
}

// inside is an Embedded that counts.
type inside struct {
	*Embedded
	handles []*publisher.Counter // nil for increments by name
}

func openEmbedded(at Place, byHandle bool) (Instance, error) {
	db, err := OpenEmbedded(filepath.Join(at.Dir, "data"))
	if err != nil {
		return nil, err
	}
	e := &inside{Embedded: db}
	if byHandle {
		e.handles, err = handles(e.DB, at.Load.Names)
	}
	return opened(e, err)
}

// An adder is *embedded.DB or *publisher.Publisher. The call through the interface counts as countmill's time.
type adder interface {
	Add(counter string, delta int64) error
	Counter(name string) (*publisher.Counter, error)
}

func handles(db adder, names []string) ([]*publisher.Counter, error) {
	all := make([]*publisher.Counter, len(names))
	for i, name := range names {
		var err error
		if all[i], err = db.Counter(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Count adds until the goal, and flushes.
func (e *inside) Count(ctx context.Context, r *load.Run) error {
	var err error
	if e.handles != nil {
		err = addByHandle(ctx, r, e.handles)
	} else {
		err = addByName(ctx, r, e.DB)
	}
	if err != nil {
		return err
	}
	if err := e.Flush(ctx); err != nil {
		return err
	}
	r.Stop()
	stats := e.Stats().Aggregator
	r.Note("commits", float64(stats.Commits))
	n, _ := r.Done()
	r.Note("entities_per_million", float64(stats.EntitiesWritten)*1e6/float64(max(n, 1)))
	return nil
}

// addStep is how many increments a goroutine adds between two readings of the clock.
const addStep = 1000

// addByName walks the run with one goroutine for each CPU.
func addByName(ctx context.Context, r *load.Run, db adder) error {
	return r.Walk(ctx, runtime.GOMAXPROCS(0), addStep, func(ctx context.Context, _, _ int, order []uint32) error {
		for _, n := range order {
			if err := db.Add(r.Names[n], 1); err != nil {
				if err := again(ctx, err, func() error { return db.Add(r.Names[n], 1) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// addByHandle is addByName by handle. The loops are separate because a call through a function
// value would take much of the time of an Add.
func addByHandle(ctx context.Context, r *load.Run, handles []*publisher.Counter) error {
	return r.Walk(ctx, runtime.GOMAXPROCS(0), addStep, func(ctx context.Context, _, _ int, order []uint32) error {
		for _, n := range order {
			if err := handles[n].Add(1); err != nil {
				if err := again(ctx, err, func() error { return handles[n].Add(1) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// again repeats an increment that was refused because the open batch is full.
func again(ctx context.Context, err error, add func() error) error {
	for ; err != nil; err = add() {
		if !errors.Is(err, countmill.ErrOverloaded) {
			return err
		}
		if err := Wait(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for a time, unless ctx ends first.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Check reads every total from the store, with the reader that serves them over HTTP.
func (e *inside) Check(ctx context.Context, r *load.Run) error {
	return r.Check(ctx, e.Totals)
}

// Totals reads the store.
func (e *Embedded) Totals(ctx context.Context, names []string) ([]int64, error) {
	all, err := e.DB.Totals(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	got := make([]int64, len(all))
	for i := range all {
		got[i] = all[i].Total
	}
	return got, nil
}
