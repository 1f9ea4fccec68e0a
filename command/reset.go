package command

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/app"
)

var resetCommand = command{
	name:  "reset",
	args:  "NAME",
	short: "set a counter back to 0",
	long: `Sets the total of the counter NAME back to 0 and prints what it was. What is counted
meanwhile is either in what it prints or in the total afterwards, once. What an
aggregator has not folded yet counts after it.

  countmill reset page:/home
  countmill reset page:/home --id 2026-01     once, however often it is run

Totals that callers take from a cache (--max-staleness) may be from before it.
`,
	flags: func() string {
		return `  --id ID
      Name of this reset, 1 to 128 bytes. A repeat with the same ID within the deduplication window
      changes nothing and prints the same. Default: random.
` + verbHelp
	},
	run: runReset,
}

var deleteCommand = command{
	name:  "delete",
	args:  "NAME",
	short: "set a counter back to 0 and hide it",
	long: `Deletes the counter NAME and prints what its total was. It does not exist then and is
in no list, until somebody increments it: it begins again from 0. Its record and shards
are removed a day later.

  countmill delete page:/home

Totals that callers take from a cache (--max-staleness) may be from before it.
`,
	flags: func() string { return verbHelp },
	run:   runDelete,
}

func runReset(ctx context.Context, c call) error {
	v := newVerbFlags("reset", defaultTimeout)
	id := v.set.String("id", "", "")
	name, err := v.parseName(c)
	if err != nil {
		return err
	}
	if !v.set.Changed("id") {
		*id = rand.Text()
	} else if err := countmill.CheckID("--id", *id); err != nil {
		return app.Usagef("%s", err)
	}
	answer, err := v.ask(ctx, http.MethodPost, "/v1/reset", map[string]string{"counter": name, "id": *id})
	if err != nil {
		if !surelyNot(err) {
			return fmt.Errorf("maybe reset: %w; repeat it with --id %s", err, *id)
		}
		return fmt.Errorf("not reset: %w", err)
	}
	return v.printRemoved(c, answer)
}

func runDelete(ctx context.Context, c call) error {
	v := newVerbFlags("delete", defaultTimeout)
	name, err := v.parseName(c)
	if err != nil {
		return err
	}
	answer, err := v.ask(ctx, http.MethodDelete, counterPath(name), nil)
	if err != nil {
		if !surelyNot(err) {
			return fmt.Errorf("maybe deleted: %w; repeat it", err)
		}
		return fmt.Errorf("not deleted: %w", err)
	}
	return v.printRemoved(c, answer)
}

// parseName reads the flags of a verb that takes one NAME.
func (v *verbFlags) parseName(c call) (string, error) {
	names, err := v.parse(c)
	if err != nil {
		return "", err
	}
	if len(names) > 1 {
		return "", app.Usagef("too many arguments: %q (quote a name that holds spaces)", names[1])
	}
	if err := checkNames(names, 1); err != nil {
		return "", err
	}
	return names[0], nil
}

// surelyNot reports whether a request has certainly changed nothing: it was never sent, or
// the server says so. A 500 and a 504 leave it open, and so does an answer that did not come.
func surelyNot(err error) bool {
	var problem *apiError
	if errors.As(err, &problem) {
		return problem.Status < 500 || problem.Status == http.StatusServiceUnavailable ||
			problem.Type == "urn:countmill:problem:overflow"
	}
	var never *unreachable
	return errors.As(err, &never) || errors.Is(err, app.ErrUsage)
}

func (v *verbFlags) printRemoved(c call, answer []byte) error {
	if v.json {
		_, err := c.stdout.Write(answer)
		return err
	}
	var got struct {
		Removed json.Number `json:"removed"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Removed == "" {
		return errors.New("the server answered with something else than what was removed; is that a countmill?")
	}
	fmt.Fprintln(c.stdout, got.Removed)
	return nil
}
