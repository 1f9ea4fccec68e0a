package command

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var journalCommand = cli.Command{
	Path:  "journal",
	Group: "count",
	Args:  "NAME",
	Short: "print the increments of a counter under a rule for the journal",
	Long: `Prints a line for each entry, the oldest first: its time, the delta, who sent it, the id of its
part and its key, with tabs between. It needs a rule for the journal ("countmill help rule"). An
entry is one increment, or several of one sender that were sent together. - is a sender that is
not known.

  countmill journal billing:shop-7
  countmill journal billing:shop-7 --id order-1001
  countmill journal billing:shop-7 --after KEY       go on after the last key of before
`,
	New: func() cli.Verb { return new(journalVerb) },
}

// journalAsk is how many entries are asked for at a time.
const journalAsk = 1000

type journalVerb struct {
	calling
	id, after string
	limit     int
}

func (c *journalVerb) Flags() []cli.Flag {
	return c.flags(usual, pages,
		cli.New("id", "ID", cli.Any(&c.id), "Only the increment with this id.").Default("none"),
		cli.New("after", "KEY", cli.Any(&c.after), "Only entries after this key.").Default("none"),
		cli.New("limit", "N", cli.Count{To: &c.limit, Max: math.MaxInt32}, "Stop after N entries. 0: all."),
	)
}

func (c *journalVerb) Run(ctx context.Context) error {
	if err := checkNames(c.args, 1); err != nil {
		return err
	}
	printed, err := c.showPages(ctx, client.JournalQuery{Counter: c.args[0], ID: c.id, After: c.after})
	if err == nil && printed == 0 && !c.json {
		fmt.Fprintln(c.stderr, "no entries; countmill rule list shows which counters have a journal")
	}
	return err
}

// showPages prints the pages of a query, and returns the number of their entries.
func (c *journalVerb) showPages(ctx context.Context, q client.JournalQuery) (printed int, err error) {
	for {
		q.Limit = journalAsk
		if c.limit > 0 {
			q.Limit = min(c.limit-printed, journalAsk)
		}
		page, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.JournalPage, error) { return cl.Journal(ctx, q) })
		if err != nil {
			return printed, err
		}
		if err := c.print(page.Entries); err != nil {
			return printed, err
		}
		printed += len(page.Entries)
		if q.After = page.Next; q.After == "" || c.limit > 0 && printed >= c.limit {
			return printed, nil
		}
	}
}

func (c *journalVerb) print(entries []client.JournalEntry) error {
	if c.json {
		return c.writeJSON()
	}
	for _, e := range entries {
		if _, err := fmt.Fprintf(c.stdout, "%s\t%d\t%s\t%s\t%s\n", stamp(e.Time), e.Delta, cmp.Or(cli.Plain(e.Sender), "-"), cli.Plain(e.Part), cli.Plain(e.Key)); err != nil {
			return err
		}
	}
	return nil
}
