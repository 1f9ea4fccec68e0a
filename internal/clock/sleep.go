package clock

import (
	"context"
	"time"
)

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Backoff is how long to wait after that many failures. Its ceiling is first, doubled for each of them, and at most
// most. It has full jitter, so that callers that failed together do not retry together (Brooker, Exponential Backoff And
// Jitter, 2015).
func (e *Env) Backoff(failures int, first, most time.Duration) time.Duration {
	return e.Jitter(min(first<<min(failures, 12), most)) + time.Millisecond
}
