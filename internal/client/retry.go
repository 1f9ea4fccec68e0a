package client

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"net/http"
	"time"
)

// firstPause is doubled with each try. A guess: a restart takes a second or two, and whoever runs
// the command waits for it.
const firstPause = 100 * time.Millisecond

// Classify says whether a repeat may help, and whether the try may have been counted.
func Classify(err error) (again, maybe bool) {
	var problem *Problem
	var away *Unreachable
	switch {
	case errors.As(err, &away):
		return true, false
	case !errors.As(err, &problem):
		return true, true // the connection broke, or no answer came
	case problem.Status == http.StatusTooManyRequests || problem.Status == http.StatusServiceUnavailable ||
		problem.Status == http.StatusInsufficientStorage:
		return true, false
	}
	// 504 is countmill's outcome unknown; 500 and 502 are not known to be anything.
	return problem.Status == http.StatusGatewayTimeout, problem.Status >= 500
}

// Pause waits before the next try and reports whether there is time for one.
func Pause(ctx context.Context, try int, err error) bool {
	wait := firstPause << try
	wait = wait/2 + mathrand.N(wait/2)
	var problem *Problem
	if errors.As(err, &problem) {
		wait = max(wait, problem.retryAfter)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
