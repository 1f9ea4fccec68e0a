package command

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var topCommand = cli.Command{
	Path:  "top",
	Group: "count",
	Args:  "INDEX",
	Short: "print the best counters of an index",
	Long: `Prints a line for each of the best counters of the index: its place, its total, and its name.
Equal totals share a place, and the next place counts them.
The order is that of a look at all counters, some seconds ago; a line on standard error says when.
A window orders by the increments of a calendar day, week or month of a zone, or in the last hour; it needs a
rule for series ("countmill help rule").

  countmill top sites
  countmill top sites -n 100 --window today --tz Asia/Kolkata
  countmill top sites --of groups
`,
	New: func() cli.Verb { return new(topVerb) },
}

var rankCommand = cli.Command{
	Path:  "rank",
	Group: "count",
	Args:  "INDEX COUNTER",
	Short: "print the place of a counter in an index",
	Long: `Prints the place of the counter, or of the group, among all of the index, and its total.

  countmill rank sites page:s1:/home
  countmill rank sites --group site:s1
`,
	New: func() cli.Verb { return new(rankVerb) },
}

// A board has the flags that top and rank have in common.
type board struct{ window, tz string }

func (b *board) windowFlag() cli.Flag {
	return cli.New("window", "WINDOW", cli.Text{To: &b.window, Of: []string{"today", "this-week", "this-month", "1h"}},
		"Order by the increments of today, this-week or this-month of --tz, or of the last 1h.").Default("none: totals")
}

func (b *board) query(c *call, index string) (client.BoardQuery, error) {
	q := client.BoardQuery{Index: index}
	if c.Given("tz") && b.window == "" {
		return q, cli.Usagef("--tz is given without --window (limit: with --window today, this-week or this-month)")
	}
	if b.window != "" {
		q.Window, q.Zone = b.window, b.tz
	}
	return q, nil
}

type topVerb struct {
	calling
	board
	best int
	of   string
}

func (c *topVerb) Flags() []cli.Flag {
	c.best, c.of = 10, "counters"
	return c.flags(usual, oneAnswer,
		cli.New("n", "N", cli.Count{To: &c.best, Min: 1, Max: 1000}, "How many counters. -n N is the same."),
		c.windowFlag(),
		cli.New("of", "WHAT", cli.Text{To: &c.of, Of: []string{"counters", "groups"}}, "Order the counters of the index, or its groups."),
		zoneFlag(&c.tz),
	)
}

func (c *topVerb) Run(ctx context.Context) error {
	if len(c.args) != 1 {
		return cli.Usagef("name one INDEX, got %s", cli.Quoted(c.args))
	}
	q, err := c.query(&c.call, c.args[0])
	if err != nil {
		return err
	}
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Top, error) {
		if c.of == "groups" {
			return cl.TopGroups(ctx, q, c.best)
		}
		return cl.Top(ctx, q, c.best)
	}, c.print)
}

func (c *topVerb) print(got client.Top) error {
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, t := range got.Top {
		fmt.Fprintf(table, "%d\t%d\t  %s\n", t.Rank, t.Total, cli.Plain(t.Counter))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(got.Overflowed) > 0 {
		fmt.Fprintf(c.stderr, "these have no place, because their totals do not fit 64 bits: %s\n", cli.Quoted(got.Overflowed))
	}
	switch {
	case len(got.Top) == 0 && c.window != "":
		fmt.Fprintf(c.stderr, "no %s counted in this window\n", c.of)
	case len(got.Top) == 0:
		fmt.Fprintf(c.stderr, "no %s of the index have a total\n", c.of)
	}
	c.sayScan(got.CompleteAsOf, got.Partial)
	return nil
}

type rankVerb struct {
	calling
	board
	groups []string
}

func (c *rankVerb) Flags() []cli.Flag {
	return c.flags(usual, oneAnswer,
		groupFlag(&c.groups),
		c.windowFlag(),
		zoneFlag(&c.tz),
	)
}

func (c *rankVerb) Run(ctx context.Context) error {
	names, err := withGroups(c.args, c.groups)
	if err != nil {
		return err
	}
	if len(names) != 2 || len(c.args) == 0 {
		return cli.Usagef("name one INDEX and one COUNTER or --group, got %s", cli.Quoted(names))
	}
	counter := names[1]
	q, err := c.query(&c.call, c.args[0])
	if err != nil {
		return err
	}
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Rank, error) { return cl.Rank(ctx, q, counter) }, c.print)
}

func (c *rankVerb) print(got client.Rank) error {
	if got.Rank == nil {
		return fmt.Errorf("counter %q has no place: it counted nothing", cli.Plain(got.Counter))
	}
	if _, err := fmt.Fprintf(c.stdout, "%d of %d\t%d\t%s\n", *got.Rank, got.Of, got.Total, cli.Plain(got.Counter)); err != nil {
		return err
	}
	c.sayScan(got.CompleteAsOf, got.Partial)
	return nil
}

// sayScan describes on standard error the look at all counters from which an answer comes.
func (c *call) sayScan(completeAsOf time.Time, partial bool) {
	fmt.Fprintf(c.stderr, "complete as of %s\n", stamp(completeAsOf))
	if partial {
		fmt.Fprintln(c.stderr, "increments of the window are missing: it began before its rule for series, or no rule keeps the overflow group")
	}
}
