package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A step of the stop order. until is the part of the time that may have passed when the step
// ends. A step that ends early leaves its time to the next steps.
type step struct {
	name  string
	until float64
	run   func(context.Context) error
}

// stop ends everything in one order, so that nothing is lost and nothing is sent twice:
//
//	ingest     takes no more requests and finishes those it has
//	publisher  sends the increments that it holds; a bus within the process needs the
//	           aggregator for that
//	aggregator takes no more, commits, acknowledges; the bus is still open, because
//	           closing it first would give every message back to be delivered again
//	server     reads are answered until here
//	backends   close
//
// A step that fails or takes too long does not keep the next ones from running. The
// shares of the time are guesses.
func (a *App) stop() error {
	a.stopping.Store(true)
	steps := []step{
		{"ingest", 0.35, a.stopIngest},
		{"publisher", 0.55, a.stopPublisher},
		{"aggregator", 0.85, a.drainAggregator},
		{"server", 0.93, a.stopServer},
		{"backends", 1, a.closeBackends},
	}
	var errs []error
	begin := time.Now()
	for _, s := range steps {
		ctx, cancel := context.WithDeadline(context.Background(), begin.Add(time.Duration(s.until*float64(a.cfg.ShutdownTimeout))))
		err := s.run(ctx)
		cancel()
		a.log.LogAttrs(context.Background(), slog.LevelDebug, "stop step done", slog.String("step", s.name),
			slog.Duration("since_signal", time.Since(begin)), slog.Any("err", err))
		if err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}

// stopIngest does not fail. A request may remain, such as a body that trickles in; the
// publisher, which is closed next, refuses it.
func (a *App) stopIngest(ctx context.Context) error {
	if left := a.http.StopIncrements(ctx); left > 0 {
		a.log.LogAttrs(ctx, slog.LevelWarn, "requests for increments were not done in time", slog.Int("requests", left))
	}
	return nil
}

func (a *App) stopPublisher(ctx context.Context) error {
	if a.publisher == nil {
		return nil
	}
	return a.publisher.Close(ctx)
}

func (a *App) drainAggregator(ctx context.Context) error {
	a.stopTaking()
	if a.aggregator == nil {
		return nil
	}
	select {
	case <-a.aggregating:
		return nil // it failed, and Run says so
	default:
	}
	a.stopAggregator()
	select {
	case <-a.aggregating:
		return a.aggregatorErr
	case <-ctx.Done():
		return errors.New("it was not done in time; what it had not committed is delivered again")
	}
}

// stopServer does not fail either: nothing that was accepted depends on it.
func (a *App) stopServer(ctx context.Context) error {
	a.http.CloseStreams()
	if err := a.server.Shutdown(ctx); err != nil {
		a.log.LogAttrs(ctx, slog.LevelWarn, "requests were cut", slog.Any("err", err))
	}
	return nil
}

// closeBackends gives up waiting when the time is up: the process ends next.
func (a *App) closeBackends(ctx context.Context) error {
	a.stopSweeps()
	closed := make(chan error, 1)
	go func() {
		a.taking.Wait()
		a.sweeping.Wait()
		closed <- a.backends.close()
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return errors.New("they were not closed in time")
	}
}
