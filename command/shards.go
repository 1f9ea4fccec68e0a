package command

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

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
("countmill help verify" says more). On a terminal there is a bar for each count. Negative
counts have bars too: they show the size.

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
	return printShards(c.stdout, &got, cli.IsTerminal(c.stdout))
}

// printShards draws bars for a person; a program gets the columns alone.
func printShards(out io.Writer, l *client.Shards, bars bool) error {
	if bars {
		fmt.Fprintf(out, "%s: %d shards written, %d in the record\n", l.Counter, len(l.Counts), l.Shards)
	}
	largest := 0.0
	for _, s := range l.Counts {
		if s.Count != nil {
			largest = max(largest, math.Abs(float64(*s.Count)))
		}
	}
	for _, s := range l.Counts {
		count := "overflow"
		if s.Count != nil {
			count = fmt.Sprint(*s.Count)
		}
		line := fmt.Sprintf("%d\t%s\t%s\t%s", s.Shard, count, shortStamp(s.Updated), cli.Plain(s.Problem))
		if bars {
			line = fmt.Sprintf("%3d %20s %s %s %s", s.Shard, count, bar(s.Count, largest), ageOfShard(l.AsOf, s.Updated), cli.Plain(s.Problem))
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \t")); err != nil {
			return err
		}
	}
	return nil
}

// bar is as long as the count is large. The bar of a small count is visible, if it is not 0.
func bar(count *int64, largest float64) string {
	const width = 30
	n := 0
	if count != nil && *count != 0 {
		n = max(1, int(math.Round(width*math.Abs(float64(*count))/largest)))
	}
	return fmt.Sprintf("%-*s", width, strings.Repeat("#", n))
}

// ageOfShard is how long before the answer the shard was written.
func ageOfShard(asOf, updated time.Time) string {
	if updated.IsZero() {
		return ""
	}
	return "written " + asOf.Sub(updated).Round(time.Second).String() + " ago"
}
