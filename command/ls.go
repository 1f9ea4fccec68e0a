package command

import (
	"context"
	"fmt"
	"math"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var lsCommand = cli.Command{
	Path:  "ls",
	Group: "count",
	Args:  "[PREFIX]",
	Short: "print the totals of all counters that begin with PREFIX",
	Long: `Prints a line for each counter whose name begins with PREFIX, or for all: the total, a tab
and the name, in the order of names as bytes. It reads them page by page; the totals of one
page are of one moment. A total that does not fit 64 bits is shown as overflow. Characters
that a terminal would not print are written as \u202E; --json has names as they are.

  countmill ls page:
  countmill ls page: --limit 20
`,
	New: func() cli.Verb { return new(lsVerb) },
}

// lsPage is how many counters are asked for at a time.
const lsPage = 1000

type lsVerb struct {
	calling
	minAsOf string
	limit   int
}

func (c *lsVerb) Flags() []cli.Flag {
	return c.flags(usual, pages,
		minAsOfFlag(&c.minAsOf),
		cli.New("limit", "N", cli.Count{To: &c.limit, Max: math.MaxInt32}, "Stop after N counters. 0: all."),
	)
}

func (c *lsVerb) Run(ctx context.Context) error {
	prefix, err := c.onePrefix()
	if err != nil {
		return err
	}
	q := client.ListQuery{Prefix: prefix}
	for left, seen := c.limit, 0; ; {
		if q.Limit = lsPage; c.limit > 0 {
			q.Limit = min(left, lsPage)
		}
		page, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Page, error) {
			return cl.ListPage(ctx, q, set("min_as_of", c.minAsOf))
		})
		if err != nil {
			return err
		}
		n := len(page.Totals) + len(page.Overflowed)
		left, seen = left-n, seen+n
		if err := c.print(&page); err != nil {
			return err
		}
		if page.Next == "" && seen == 0 {
			c.warnNoMatch(prefix)
		}
		if page.Next == "" || c.limit > 0 && left <= 0 {
			return nil
		}
		q.Token = page.Next
	}
}

func (c *lsVerb) print(page *client.Page) error {
	if c.json {
		return c.writeJSON()
	}
	for _, t := range page.Totals {
		for len(page.Overflowed) > 0 && page.Overflowed[0] < t.Counter {
			fmt.Fprintf(c.stdout, "overflow\t%s\n", cli.Plain(page.Overflowed[0]))
			page.Overflowed = page.Overflowed[1:]
		}
		if _, err := fmt.Fprintf(c.stdout, "%d\t%s\n", t.Total, cli.Plain(t.Counter)); err != nil {
			return err
		}
	}
	for _, name := range page.Overflowed {
		fmt.Fprintf(c.stdout, "overflow\t%s\n", cli.Plain(name))
	}
	return nil
}
