package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// undone is an error of a call that changes nothing.
type undone struct{ error }

func (e undone) Unwrap() error { return e.error }

// retry calls try until it answers, or says that it cannot be done. An answer that says
// neither is tried again, and after Timeout the outcome is unknown.
func (a *Admin) retry(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	maybe := false
	for attempt := 1; ; attempt++ {
		err := a.call(ctx, try)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errForgotten):
			return fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, err)
		case errors.Is(err, store.ErrChanged):
		case !certain(err):
			maybe = true
		case !maybe:
			return err
		}
		if attempt > 1 || !errors.Is(err, store.ErrChanged) {
			clock.Sleep(ctx, a.cfg.env.Backoff(attempt, 20*time.Millisecond, 2*time.Second)) // others may be at the same record
		}
		if ctx.Err() == nil {
			continue
		}
		if maybe {
			return fmt.Errorf("%w: %v", countmill.ErrOutcomeUnknown, err) // not %w: it says less
		}
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, err)
	}
}

func (a *Admin) call(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	return try(ctx)
}

// certain reports whether the error says that nothing was done, and that another try would
// say the same.
func certain(err error) bool {
	var look undone
	return errors.As(err, &look) || errors.Is(err, countmill.ErrUnavailable)
}
