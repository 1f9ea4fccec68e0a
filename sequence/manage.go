package sequence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// State returns the last value of a sequence, as of a moment after the call began. Errors match
// countmill.ErrInvalid or countmill.ErrUnavailable.
func (x *Issuer) State(ctx context.Context, sequence string) (state store.SequenceState, err error) {
	if err := (countmill.NextRequest{Sequence: sequence}).Check(); err != nil {
		return state, err
	}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	if state, err = x.store.Sequence(ctx, sequence); err != nil {
		return state, fmt.Errorf("%w: sequence %q: %w", countmill.ErrUnavailable, sequence, err)
	}
	return state, nil
}

// Delete marks a sequence as deleted, and returns its state before. The last value stays: the sequence
// exists again at its next request, which gets a higher value. Errors match countmill.ErrInvalid,
// countmill.ErrUnavailable or countmill.ErrOutcomeUnknown. You may repeat Delete.
func (x *Issuer) Delete(ctx context.Context, sequence string) (before store.SequenceState, err error) {
	if err := (countmill.NextRequest{Sequence: sequence}).Check(); err != nil {
		return before, err
	}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	maybe := false
	for failures := 0; ; failures++ {
		if before, err = x.tryDelete(ctx, sequence); err == nil {
			x.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "sequence deleted", slog.String("sequence", sequence), slog.Int64("last", before.Last))
			return before, nil
		}
		undone := errors.Is(err, countmill.ErrUnavailable)
		maybe = maybe || !undone && !errors.Is(err, store.ErrNotApplied)
		if undone && !maybe {
			return store.SequenceState{}, fmt.Errorf("delete sequence %q: %w", sequence, err)
		}
		if clock.Sleep(ctx, x.backoff(failures)) {
			continue
		}
		outcome := countmill.ErrUnavailable
		if maybe {
			outcome = countmill.ErrOutcomeUnknown
		}
		return store.SequenceState{}, fmt.Errorf("delete sequence %q: %w: %v", sequence, outcome, err) // not %w: it says less
	}
}

func (x *Issuer) tryDelete(ctx context.Context, sequence string) (store.SequenceState, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	return x.store.DeleteSequence(ctx, sequence)
}

// Stats counts since the start.
type Stats struct {
	// Calls got values, and Values is how many they got. A repeat counts again.
	Calls, Values int64
	// Transactions were tried, and Failures of them ended with an error.
	Transactions, Failures int64
	// Waiting calls wait for a transaction now.
	Waiting int
}

type counts struct{ calls, values, transactions, failures atomic.Int64 }

// Stats returns the counts so far.
func (x *Issuer) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Stats{x.stats.calls.Load(), x.stats.values.Load(), x.stats.transactions.Load(), x.stats.failures.Load(), x.waiting}
}
