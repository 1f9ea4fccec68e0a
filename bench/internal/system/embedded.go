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
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

func embeddedSystems() []System {
	const ack = "Flush has returned: folded into Pebble, synced to disk, counted exactly once, in the total"
	const how = "publisher, in-process bus, aggregator and pebble in one process, with the settings of `countmill up`; clock from the first Add to the return of Flush"
	return []System{
		{
			Name: "countmill/name", Ack: ack, How: how + "; Publisher.Add by name from as many goroutines as there are CPUs", Loads: names,
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

// Embedded is the parts of `countmill up`, without HTTP.
type Embedded struct {
	closers
	Store      *pebble.Store
	Aggregator *aggregator.Aggregator
	Publisher  *publisher.Publisher
	Reader     *reader.Reader
}

// embedded is an Embedded that counts.
type embedded struct {
	*Embedded
	handles []*publisher.Counter // nil for increments by name
}

func openEmbedded(at Place, byHandle bool) (Instance, error) {
	parts, err := OpenEmbedded(filepath.Join(at.Dir, "data"))
	if err != nil {
		return nil, err
	}
	e := &embedded{Embedded: parts}
	if byHandle {
		e.handles, err = handles(e.Publisher, at.Load.Names)
	}
	return opened(e, err)
}

// OpenEmbedded connects the parts over a directory, as `countmill up` does. Close it.
func OpenEmbedded(dir string) (*Embedded, error) {
	e := &Embedded{}
	if err := e.open(dir); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Embedded) open(dir string) error {
	var err error
	if e.Store, err = pebble.Open(pebble.Config{Dir: dir}); err != nil {
		return err
	}
	e.add(func() {
		_ = e.Store.Close()
		debug.FreeOSMemory() // the next system should find the machine as this one did
	})
	bus, err := inproc.New(inproc.Config{WaitForAck: true})
	if err != nil {
		return err
	}
	e.add(func() { _ = bus.Close() })
	e.Aggregator, err = aggregator.New(bus, e.Store, aggregator.Config{Linger: -1})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if e.Aggregator.Run(ctx) != nil {
			_ = bus.Close() // otherwise the publisher would wait for an aggregator that has ended
		}
	}()
	e.add(func() {
		cancel()
		<-ended
	})
	if e.Publisher, err = publisher.New(bus, publisher.Config{Linger: -1}); err != nil {
		return err
	}
	e.add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = e.Publisher.Close(ctx)
	})
	cache, err := memory.New(memory.Config{})
	if err != nil {
		return err
	}
	e.Reader, err = reader.New(e.Store, cache, reader.Config{Timeout: time.Minute})
	return err
}

func handles(pub *publisher.Publisher, names []string) ([]*publisher.Counter, error) {
	all := make([]*publisher.Counter, len(names))
	for i, name := range names {
		var err error
		if all[i], err = pub.Counter(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Count adds until the goal, and flushes.
func (e *embedded) Count(ctx context.Context, r *load.Run) error {
	var err error
	if e.handles != nil {
		err = addByHandle(ctx, r, e.handles)
	} else {
		err = addByName(ctx, r, e.Publisher)
	}
	if err != nil {
		return err
	}
	if _, err := e.Publisher.Flush(ctx); err != nil {
		return err
	}
	r.Stop()
	stats := e.Aggregator.Stats()
	r.Note("commits", float64(stats.Commits))
	n, _ := r.Done()
	r.Note("entities_per_million", float64(stats.EntitiesWritten)*1e6/float64(max(n, 1)))
	return nil
}

// addStep is how many increments a goroutine adds between two readings of the clock.
const addStep = 1000

// addByName walks the run with one goroutine for each CPU.
func addByName(ctx context.Context, r *load.Run, pub *publisher.Publisher) error {
	return r.Walk(ctx, runtime.GOMAXPROCS(0), addStep, func(ctx context.Context, _, _ int, order []uint32) error {
		for _, n := range order {
			if err := pub.Add(r.Names[n], 1); err != nil {
				if err := again(ctx, err, func() error { return pub.Add(r.Names[n], 1) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// addByHandle is addByName by handle. The two loops are separate because a call through a function
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
		if err := wait(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Check reads every total from the store, with the reader that serves them over HTTP.
func (e *embedded) Check(ctx context.Context, r *load.Run) error {
	return r.Check(ctx, e.Totals)
}

// Totals reads the store.
func (e *Embedded) Totals(ctx context.Context, names []string) ([]int64, error) {
	all, err := e.Reader.Totals(ctx, names, 0)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	got := make([]int64, len(all))
	for i := range all {
		got[i] = all[i].Total
	}
	return got, nil
}
