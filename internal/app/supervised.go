package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/systemd"
)

const (
	// readyEvery is how often a process that is not ready yet looks again. A guess.
	readyEvery = 250 * time.Millisecond
	// readyTimeout bounds one look. A guess.
	readyTimeout = 5 * time.Second
	// aliveShare parts of the watchdog's time are one pause between two looks, and bound a look. So two
	// thirds of it pass at most between two signs of life.
	aliveShare = 3
)

// supervised reports to the supervisor of the process: ready, alive, stopping.
type supervised struct {
	idle
	*systemd.Supervisor
	ready   func(context.Context) (degraded string, err error)
	log     *slog.Logger
	running task
}

// supervisors is one if a supervisor waits for reports.
func supervisors(a *App) []named {
	if a.cfg.Supervisor == nil {
		return nil
	}
	return []named{{"supervisor", &supervised{Supervisor: a.cfg.Supervisor, ready: a.ready, log: a.log}}}
}

// Run reports ready once, when /readyz would be 200. With a watchdog it also reports alive as long as the
// roles answer whether they are ready. Their answer may be no: a restart does not bring a store back. A
// role that hangs does not answer, and a restart helps.
func (s *supervised) Run(ctx context.Context) error {
	return s.running.run(ctx, func(ctx context.Context) error {
		for ready := false; ; {
			err := s.look(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil && !ready {
				ready = s.report(ctx, systemd.Ready)
			}
			if s.Watchdog > 0 {
				s.report(ctx, systemd.Alive)
			}
			if ready && s.Watchdog == 0 || !clock.Sleep(ctx, s.pause(ready)) {
				return nil
			}
		}
	})
}

func (s *supervised) look(ctx context.Context) error {
	bound := readyTimeout
	if s.Watchdog > 0 {
		bound = min(bound, s.Watchdog/aliveShare)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	_, err := s.ready(ctx)
	return err
}

func (s *supervised) pause(ready bool) time.Duration {
	switch {
	case ready:
		return s.Watchdog / aliveShare
	case s.Watchdog > 0:
		return min(readyEvery, s.Watchdog/aliveShare)
	}
	return readyEvery
}

// report returns whether the supervisor has the message. If not, the process goes on: the supervisor ends
// it if it misses a message.
func (s *supervised) report(ctx context.Context, message string) bool {
	err := s.Send(message)
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "supervisor not reached", slog.String("message", message), slog.Any("err", err))
	}
	return err == nil
}

// Stop is the first of all, so that the supervisor knows of the stop from its beginning.
func (s *supervised) Stop(ctx context.Context) error {
	s.running.stop()
	s.report(ctx, systemd.Stopping)
	return nil
}
