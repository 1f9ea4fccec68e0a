package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

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
	removed, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Removed, error) { return cl.Reset(ctx, name, id) })
	if err = withoutKey(err); err != nil {
		if errors.Is(err, countmill.ErrOutcomeUnknown) {
			return fmt.Errorf("maybe reset: %w; repeat it with --id %s", err, id)
		}
		return fmt.Errorf("not reset: %w", err)
	}
	return c.printRemoved(removed)
}

type deleteVerb struct{ calling }

func (c *deleteVerb) Run(ctx context.Context) error {
	name, err := c.oneName()
	if err != nil {
		return err
	}
	removed, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Removed, error) { return cl.Delete(ctx, name) })
	if err != nil {
		if errors.Is(err, countmill.ErrOutcomeUnknown) {
			return fmt.Errorf("maybe deleted: %w; repeat it", err)
		}
		return fmt.Errorf("not deleted: %w", err)
	}
	return c.printRemoved(removed)
}

func (c *calling) printRemoved(r client.Removed) error {
	c.sayMissingOne(r.Counter, r.Exists)
	if c.json {
		return c.writeJSON()
	}
	_, err := fmt.Fprintln(c.stdout, cmp.Or(r.Exact, strconv.FormatInt(r.Removed, 10)))
	return err
}

// withoutKey is an error of a call whose key the caller reports.
func withoutKey(err error) error {
	if e, ok := errors.AsType[*client.CallError](err); ok {
		return e.Unwrap()
	}
	return err
}
