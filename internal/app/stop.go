package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// shares is the part of the time for a stop that may have passed when a service has stopped; 1 for
// any other service. A service that stops early leaves its time to the next. The shares are guesses.
var shares = map[string]float64{"ingest": 0.35, "publisher": 0.55, "aggregator": 0.85, "sequences": 0.9, "server": 0.93}

// stop ends the services in the order of the list, so that nothing is lost and nothing is sent
// twice:
//
//	ingest     takes no more requests and finishes those it has
//	publisher  sends the increments that it holds; a bus within the process needs the
//	           aggregator for that
//	aggregator takes no more, commits, acknowledges; the bus is still open, because
//	           closing it first would give every message back to be delivered again
//	sequences  gives no more values and finishes the calls that it has
//	server     reads are answered until here
//	backends   close
//
// A service that fails or takes too long does not keep the next ones from stopping.
func (a *App) stop() error {
	a.stopping.Store(true)
	var errs []error
	begin := time.Now()
	for _, s := range a.services {
		if server, ok := s.service.(*serving); ok {
			server.HurryBodies()
		}
	}
	for _, s := range a.services {
		until := cmp.Or(shares[s.name], 1) * float64(a.cfg.ShutdownTimeout)
		ctx, cancel := context.WithDeadline(context.Background(), begin.Add(time.Duration(until)))
		err := s.Stop(ctx)
		cancel()
		a.log.LogAttrs(context.Background(), slog.LevelDebug, "service stopped", slog.String("service", s.name),
			slog.Duration("since_signal", time.Since(begin)), slog.Any("err", err))
		if err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}

// runs are the services that run.
type runs struct {
	ended chan error // has room for all
	n     int
}

func startAll(ctx context.Context, services []named) *runs {
	r := &runs{make(chan error, len(services)), len(services)}
	for _, s := range services {
		go func() { r.ended <- s.Run(ctx) }()
	}
	return r
}

// first returns the first error of a service, or nil when ctx ends.
func (r *runs) first(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-r.ended:
			if r.n--; err != nil {
				return err
			}
		}
	}
}

// rest returns the errors of the other services. It waits for all, or reads only the errors that
// are there: a service that did not stop in time may still run.
func (r *runs) rest(all bool) error {
	var errs []error
	for ; r.n > 0 && (all || len(r.ended) > 0); r.n-- {
		errs = append(errs, <-r.ended)
	}
	return errors.Join(errs...)
}
