package system

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/publisher"
)

func httpBusSystems() []System {
	const how = "publisher and backend/httpbus in this process, `countmill up` in another, default settings; clock from the first Add to the return of Flush"
	return []System{
		{
			Name: "httpbus/name", Ack: "Flush has returned: " + acceptedUp, Loads: names,
			How:    how + "; Publisher.Add by name from as many goroutines as there are CPUs",
			Family: "httpbus/name", Against: "redis/pipelined", Version: goVersion,
			Open: func(ctx context.Context, at Place) (Instance, error) { return openHTTPBus(ctx, at, false) },
		},
		{
			Name: "httpbus/handle", Ack: "Flush has returned: " + acceptedUp, Loads: names,
			How:    how + "; Counter.Add by handle, likewise",
			Family: "httpbus/handle", Against: "redis/pipelined", Version: goVersion,
			Open: func(ctx context.Context, at Place) (Instance, error) { return openHTTPBus(ctx, at, true) },
		},
	}
}

// httpBus is a publisher whose bus is HTTP.
type httpBus struct {
	closers
	addr      string
	publisher *publisher.Publisher
	handles   []*publisher.Counter // nil for increments by name
}

func openHTTPBus(ctx context.Context, at Place, byHandle bool) (Instance, error) {
	d := &httpBus{}
	return opened(d, d.open(ctx, at, byHandle, "--data", filepath.Join(at.Dir, "data")))
}

func (d *httpBus) open(ctx context.Context, at Place, byHandle bool, flags ...string) error {
	var err error
	if d.addr, _, err = server.FreeAddr(); err != nil {
		return err
	}
	p, err := server.Start(ctx, server.Spec{
		Name: "up", Path: at.Countmill, Dir: at.Dir, Args: append([]string{"up", "--listen", d.addr}, flags...),
		Ready: Answers("http://" + d.addr + "/readyz"),
	})
	if err != nil {
		return err
	}
	d.add(p.Stop)
	bus, err := httpbus.Open("http://" + d.addr)
	if err != nil {
		return err
	}
	d.add(func() { _ = bus.Close() })
	if d.publisher, err = publisher.New(bus, publisher.Config{}); err != nil {
		return err
	}
	d.add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = d.publisher.Close(ctx)
	})
	if byHandle {
		d.handles, err = handles(d.publisher, at.Load.Names)
	}
	return err
}

// Count adds until the goal, and flushes.
func (d *httpBus) Count(ctx context.Context, r *load.Run) error {
	var err error
	if d.handles != nil {
		err = addByHandle(ctx, r, d.handles)
	} else {
		err = addByName(ctx, r, d.publisher)
	}
	if err != nil {
		return err
	}
	if _, err := d.publisher.Flush(ctx); err != nil {
		return err
	}
	r.Stop()
	if s := d.publisher.Stats(); s.Unknown > 0 {
		return fmt.Errorf("%w: the outcome of %d increments is unknown", load.ErrWrong, s.Unknown)
	}
	n, _ := r.Done()
	r.Note("bytes_per_million", float64(d.publisher.Stats().Bytes)*1e6/float64(max(n, 1)))
	r.Note("batches", float64(d.publisher.Stats().Messages))
	r.Note("repeats", float64(d.publisher.Stats().Resends))
	return nil
}

// Check reads every total from the server.
func (d *httpBus) Check(ctx context.Context, r *load.Run) error {
	return r.Check(ctx, func(ctx context.Context, names []string) ([]int64, error) { return Totals(ctx, d.addr, names) })
}
