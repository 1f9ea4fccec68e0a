package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var resetCommand = cli.Command{
	Path:  "reset",
	Group: "change",
	Args:  "NAME",
	Short: "set a counter back to 0",
	Long: `Sets the total of the counter NAME back to 0 and prints the old total. An increment
made meanwhile is in that total or in the new one, once. Increments that
no aggregator has folded yet count after the reset.

  countmill reset page:/home
  countmill reset page:/home --id 2026-01     once, however often it is run

Totals that callers take from a cache (--max-staleness) may be from before it.
`,
	New: func() cli.Verb { return new(resetVerb) },
}

var deleteCommand = cli.Command{
	Path:  "delete",
	Group: "change",
	Args:  "NAME",
	Short: "set a counter back to 0 and hide it",
	Long: `Deletes the counter NAME and prints what its total was. It does not exist then and is
in no list, until somebody increments it: it begins again from 0. Its record and shards
are removed a day later.

  countmill delete page:/home

Totals that callers take from a cache (--max-staleness) may be from before it.
`,
	New: func() cli.Verb { return new(deleteVerb) },
}

type resetVerb struct {
	calling
	id string
}

func (c *resetVerb) Flags() []cli.Flag {
	return c.flags(usual, oneAnswer,
		cli.New("id", "ID", cli.Any(&c.id), "Name of this reset, 1 to 128 bytes. A repeat with the same ID within the deduplication window changes nothing and prints the same.").Default("random"),
	)
}

func (c *resetVerb) Run(ctx context.Context) error {
	name, err := c.oneName()
	if err != nil {
		return err
	}
	id, err := c.requestID(c.id)
	if err != nil {
		return err
	}
	answer, err := c.ask(ctx, client.Request{Method: http.MethodPost, Path: "/v1/reset", Body: body(map[string]string{"counter": name, "id": id})})
	if err != nil {
		if errors.Is(err, countmill.ErrOutcomeUnknown) {
			return fmt.Errorf("maybe reset: %w; repeat it with --id %s", err, id)
		}
		return fmt.Errorf("not reset: %w", err)
	}
	return c.printRemoved(name, answer)
}

type deleteVerb struct{ calling }

func (c *deleteVerb) Run(ctx context.Context) error {
	name, err := c.oneName()
	if err != nil {
		return err
	}
	answer, err := c.ask(ctx, client.Request{Method: http.MethodDelete, Path: client.CounterPath(name)})
	if err != nil {
		if errors.Is(err, countmill.ErrOutcomeUnknown) {
			return fmt.Errorf("maybe deleted: %w; repeat it", err)
		}
		return fmt.Errorf("not deleted: %w", err)
	}
	return c.printRemoved(name, answer)
}

func (c *calling) printRemoved(name string, answer []byte) error {
	var got struct {
		Removed json.Number `json:"removed"`
		Exact   json.Number `json:"removed_exact"`
		Exists  *bool       `json:"exists"`
	}
	err := json.Unmarshal(answer, &got)
	c.sayMissingOne(name, got.Exists)
	if c.json {
		_, err := c.stdout.Write(answer)
		return err
	}
	if got.Removed = cmp.Or(got.Removed, got.Exact); err != nil || got.Removed == "" {
		return errors.New("the server answered with something else than what was removed; is that a countmill?")
	}
	fmt.Fprintln(c.stdout, got.Removed)
	return nil
}
