package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/app"
)

var incrCommand = command{
	name:  "incr",
	args:  "NAME [DELTA]",
	short: "add DELTA, or 1, to a counter",
	long: `Adds DELTA, or 1, to the counter NAME and returns when that is durable.

  countmill incr page:/home
  countmill incr stock:apples -3
  countmill incr orders --id order-1017

It repeats by itself for a while when the server is away or does not answer, and counts
once all the same: without --id it sends an Idempotency-Key of its own.
A name that begins with - is written after --.
`,
	flags: func() string {
		return `  --id ID
      Name of the event: the same ID on the same counter counts once.
  --key KEY
      Idempotency-Key of the request: the same KEY with the same request counts once.
  --time TIME
      When it happened, as 2006-01-02T15:04:05Z. Default now.
` + verbHelp
	},
	run: runIncr,
}

// An increment is the body of POST /v1/increments.
type increment struct {
	Counter string `json:"counter"`
	Delta   int64  `json:"delta"`
	ID      string `json:"id,omitempty"`
	Time    string `json:"time,omitempty"`
}

func runIncr(ctx context.Context, c call) error {
	v := newVerbFlags("incr", defaultTimeout)
	id := v.set.String("id", "", "")
	key := v.set.String("key", "", "")
	at := v.set.String("time", "", "")
	args, err := v.parse(c)
	if err != nil {
		return err
	}
	inc, err := parseIncrement(args, *at)
	if err != nil {
		return err
	}
	for flag, text := range map[string]string{"id": *id, "key": *key} {
		if err := checkOptionalID(v, flag, text); err != nil {
			return err
		}
	}
	inc.ID = *id
	cl, err := v.client()
	if err != nil {
		return err
	}
	own := *key == "" && *id == ""
	if own {
		*key = rand.Text()
	}
	answer, err := sendSafely(ctx, cl, v.timeout, *key, inc)
	if err != nil {
		return outcome(err, *key, own)
	}
	if v.json {
		_, err = c.stdout.Write(answer)
		return err
	}
	fmt.Fprintf(c.stdout, "%s %+d\n", inc.Counter, inc.Delta)
	return nil
}

func checkOptionalID(v *verbFlags, flag, text string) error {
	if !v.set.Changed(flag) {
		return nil
	}
	if err := countmill.CheckID("--"+flag, text); err != nil {
		return app.Usagef("%s", err)
	}
	return nil
}

func parseIncrement(args []string, at string) (increment, error) {
	inc := increment{Delta: 1}
	if len(args) == 0 {
		return inc, app.Usagef("NAME is missing")
	}
	if len(args) > 2 {
		return inc, app.Usagef("too many arguments: %q (quote a name that holds spaces)", args[2])
	}
	inc.Counter = args[0]
	if err := checkCounter(inc.Counter); err != nil {
		return inc, err
	}
	if len(args) == 2 {
		delta, err := parseDelta(args[1])
		if err != nil {
			return inc, err
		}
		inc.Delta = delta
	}
	if at != "" {
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			return inc, app.Usagef("--time: must be like 2006-01-02T15:04:05Z, got %q", at)
		}
	}
	inc.Time = at
	return inc, nil
}

func parseDelta(text string) (int64, error) {
	delta, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) || text[0] == '+' {
		return 0, app.Usagef("DELTA %q is not an integer (limit: -9007199254740991 to 9007199254740991, not 0)", text)
	}
	if err := countmill.CheckDelta(delta); err != nil {
		return 0, app.Usagef("DELTA %s: %s", text, err)
	}
	return delta, nil
}

func checkCounter(name string) error {
	if err := countmill.CheckCounter(name); err != nil {
		return app.Usagef("NAME %q: %s", name, err)
	}
	return nil
}

// A sendError is the last error of sendSafely.
type sendError struct {
	cause error
	maybe bool // an earlier or the last try may have been counted
}

func (e *sendError) Error() string { return e.cause.Error() }
func (e *sendError) Unwrap() error { return e.cause }

// Tries of one increment. A guess: a restart takes a second or two, and whoever runs
// the command waits for it.
const (
	maxTries   = 6
	firstPause = 100 * time.Millisecond
)

// sendSafely sends an increment that has an id or a key, and repeats it while a repeat
// may help. Every error is a *sendError.
func sendSafely(ctx context.Context, cl *client, timeout time.Duration, key string, inc increment) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	maybe := false
	for try := 0; ; try++ {
		// A try that hangs must leave time for another.
		once, end := context.WithTimeout(ctx, max(timeout/2, time.Millisecond))
		answer, err := cl.post(once, "/v1/increments", header, inc)
		end()
		if err == nil {
			return answer, nil
		}
		again, applied := classify(err)
		// Another delta has the id, so no earlier try was counted either.
		maybe = (maybe || applied) && idsReused(err) == nil
		if !again || try+1 == maxTries || !pause(ctx, try, err) {
			return nil, &sendError{err, maybe}
		}
	}
}

// classify says whether a repeat may help, and whether the try may have been counted.
func classify(err error) (again, maybe bool) {
	var problem *apiError
	var away *unreachable
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

// pause waits before the next try and reports whether there is time for one.
func pause(ctx context.Context, try int, err error) bool {
	wait := firstPause << try
	wait = wait/2 + mathrand.N(wait/2)
	var problem *apiError
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

// outcome says what the person can do about the error.
func outcome(err error, key string, own bool) error {
	var e *sendError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case !e.maybe:
		return fmt.Errorf("not counted: %w", e.cause)
	case own:
		return fmt.Errorf("maybe counted: %w; to repeat it safely add --key %s", e.cause, key)
	}
	return fmt.Errorf("maybe counted: %w; repeat it with the same --id or --key", e.cause)
}
