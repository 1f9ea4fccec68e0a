package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var shardsCommand = cli.Command{
	Path:  "shards",
	Group: "look",
	Args:  "NAME",
	Short: "print the count of each shard of a counter",
	Long: `Prints a line for each shard of the counter NAME that was written: its number, its count,
when it was last written, if the store knows that, and its problem, if it has one
("countmill help verify" says more).

Counts differ, as commits do. A shard that was never written is not shown. Shards that came
later have less. Aggregators give a counter more of them when it needs more. A reset or delete
changes no shard: the total is the sum of the counts, minus the part that resets subtracted.
`,
	New: func() cli.Verb { return new(shardsVerb) },
}

type shardsVerb struct{ calling }

func (c *shardsVerb) Run(ctx context.Context) error {
	name, err := c.oneName()
	if err != nil {
		return err
	}
	got, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Shards, error) { return cl.Shards(ctx, name) })
	if err != nil {
		return err
	}
	c.sayMissingOne(name, got.Exists)
	if c.json {
		return c.writeJSON()
	}
	for _, s := range got.Counts {
		count := "overflow"
		if s.Count != nil {
			count = fmt.Sprint(*s.Count)
		}
		line := fmt.Sprintf("%d\t%s\t%s\t%s", s.Shard, count, shortStamp(s.Updated), cli.Plain(s.Problem))
		if _, err := fmt.Fprintln(c.stdout, strings.TrimRight(line, " \t")); err != nil {
			return err
		}
	}
	return nil
}
