package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

// maxNames is the most counters of one POST /v1/totals.
const maxNames = 1000

var getCommand = cli.Command{
	Path:  "get",
	Group: "count",
	Args:  "NAME...",
	Short: "print totals",
	Long: `Prints the total of the counter NAME. With several names it prints a line for each, the
total, a tab and the name; all of one moment, at most 1,000. A counter that nobody has
incremented is 0. On a terminal a further line on standard error says how old the totals are,
and how far the aggregators are behind (lag).

  countmill get page:/home
  countmill get page:/home page:/about --json
  countmill get --group site:s1

With --after the total contains every increment of a receipt, which incr --json prints where the
roles are apart. A line on standard error names each dead letter that has some of them.

  countmill get orders --after RECEIPT --wait 2s
`,
	New: func() cli.Verb { return new(getVerb) },
}

// totalText is the total, or "overflow" as in ls.
func totalText(t *client.Total) string {
	if t.Error != "" {
		return "overflow"
	}
	return strconv.FormatInt(t.Total, 10)
}

type getVerb struct {
	calling
	maxStaleness, wait time.Duration
	minAsOf, after     string
	groups             []string
}

func (c *getVerb) Flags() []cli.Flag {
	return c.flags(usual, oneAnswer,
		cli.New("max-staleness", "DURATION", cli.Duration{To: &c.maxStaleness, Max: time.Hour}, "How old a total may be; 0s reads the store.").Default("the server's"),
		minAsOfFlag(&c.minAsOf),
		cli.New("after", "RECEIPT", cli.Any(&c.after), "Only totals that contain every increment of this receipt.").Default("none"),
		cli.New("wait", "DURATION", cli.Duration{To: &c.wait, Max: 5 * time.Second}, "With --after: how long to wait until the increments are counted.").Default("0s"),
		groupFlag(&c.groups),
	)
}

func (c *getVerb) Run(ctx context.Context) error {
	names, err := withGroups(c.args, c.groups)
	if err != nil {
		return err
	}
	if err := checkNames(names, maxNames); err != nil {
		return err
	}
	got, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Totals, error) {
		return cl.QueryTotals(ctx, names, c.readOptions()...)
	})
	if err != nil {
		return err
	}
	if c.json {
		c.sayMissing(got.Totals)
		return errors.Join(c.writeJSON(), overflowOf(got.Totals))
	}
	printTotals(c.stdout, got.Totals)
	if err := overflowOf(got.Totals); err != nil {
		return err
	}
	c.sayMissing(got.Totals)
	sayDeadLetters(c.stderr, got.DeadLetters)
	if cli.IsTerminal(c.stdout) {
		fmt.Fprintln(c.stderr, ageOf(&got, time.Now()))
	}
	return nil
}

// readOptions are those of a read that flags gave.
func (c *getVerb) readOptions() []client.ReadOption {
	options := []client.ReadOption{set("min_as_of", c.minAsOf), set("after", c.after)}
	if c.Given("max-staleness") {
		options = append(options, client.WithMaxStaleness(c.maxStaleness))
	}
	if c.Given("wait") {
		options = append(options, set("wait", c.wait.String()))
	}
	return options
}

// sayDeadLetters names the dead letters with increments of a receipt.
func sayDeadLetters(out io.Writer, letters []client.DeadLetterRef) {
	for _, s := range letters {
		state := "see countmill dead show " + s.Key
		if s.Discarded {
			state = "it was discarded"
		}
		fmt.Fprintf(out, "countmill: increments of the receipt are in dead letter %s: %s\n", s.Key, state)
	}
}

// ageOf says how old the totals of an answer are, and how far the aggregators are behind.
func ageOf(got *client.Totals, now time.Time) string {
	asOf := got.Totals[0].AsOf
	line := fmt.Sprintf("as of %s, %.1fs ago", asOf.Format(time.RFC3339), max(now.Sub(asOf), 0).Seconds())
	if got.Lag == nil {
		return line + "; lag unknown: no aggregator has reported lately"
	}
	return line + fmt.Sprintf("; lag %.1fs", *got.Lag)
}

func printTotals(out io.Writer, totals []client.Total) {
	for _, t := range totals {
		switch {
		case len(totals) > 1:
			fmt.Fprintf(out, "%s\t%s\n", totalText(&t), t.Counter)
		case t.Error == "":
			fmt.Fprintln(out, t.Total)
		}
	}
}

// overflowOf is the error that totals do not fit 64 bits.
func overflowOf(totals []client.Total) error {
	var names []string
	for _, t := range totals {
		if t.Error != "" {
			names = append(names, t.Counter)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: counter %s", countmill.ErrOverflow, cli.Quoted(names))
}
