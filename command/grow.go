package command

import (
	"context"
	"fmt"
	"strconv"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var growCommand = cli.Command{
	Path:  "grow",
	Group: "change",
	Args:  "NAME SHARDS",
	Short: "give a counter more shards",
	Long: `Grows the number of shards of the counter NAME to SHARDS, 1 to 999. More shards take
more commits a second, where a store is distributed, and make totals dearer. A number of
shards is never lowered. A counter that nobody has incremented is made. Aggregators use
the new shards when they hear of them, within the hour; totals are right all the while.

  countmill grow page:/home 40
`,
	New: func() cli.Verb { return new(growVerb) },
}

type growVerb struct{ calling }

func (c *growVerb) Run(ctx context.Context) error {
	args := c.args
	if len(args) != 2 {
		return cli.Usagef("name one NAME and its SHARDS, got %s", cli.Quoted(args))
	}
	if err := checkCounter(args[0]); err != nil {
		return err
	}
	shards, err := strconv.Atoi(args[1])
	if err != nil || shards < 1 || shards > countmill.MaxShards {
		return cli.Usagef("SHARDS %q: must be a number from 1 to %d", args[1], countmill.MaxShards)
	}
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (struct{}, error) {
		return struct{}{}, cl.Grow(ctx, args[0], shards)
	}, func(struct{}) error {
		_, err := fmt.Fprintf(c.stdout, "%s has %d shards\n", args[0], shards)
		return err
	})
}
