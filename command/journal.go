package command

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

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
  countmill journal billing:shop-7 --before KEY --limit 20
`,
	New: func() cli.Verb { return new(journalVerb) },
}

// journalAsk is how many entries are asked for at a time.
const journalAsk = 1000

type journalVerb struct {
	calling
	id, after, before string
	limit             int
}

func (c *journalVerb) Flags() []cli.Flag {
	return c.flags(usual, pages,
		cli.New("id", "ID", cli.Any(&c.id), "Only the increment with this id.").Default("none"),
		cli.New("after", "KEY", cli.Any(&c.after), "Only entries after this key.").Default("none"),
		cli.New("before", "KEY", cli.Any(&c.before), "The entries just before this key, up to 1,000.").Default("none"),
		cli.New("limit", "N", cli.Count{To: &c.limit, Max: math.MaxInt32}, "Stop after N entries. 0: all."),
	)
}

func (c *journalVerb) Run(ctx context.Context) error {
	if err := checkNames(c.args, 1); err != nil {
		return err
	}
	if c.after != "" && c.before != "" {
		return cli.Usagef("--after and --before: name one of them")
	}
	printed, err := c.showPages(ctx, client.JournalQuery{Counter: c.args[0], ID: c.id, After: c.after, Before: c.before})
	if err == nil && printed == 0 && !c.json {
		fmt.Fprintln(c.stderr, "no entries; countmill rule list shows which counters have a journal")
	}
	return err
}

// A journalAnswer is a page, also as it came.
type journalAnswer struct {
	client.JournalPage
	raw []byte
}

// showPages prints the pages of a query, and returns the number of their entries. Those before a key come from the last page to
// the first one: a page may be short, or empty, although others are before it.
func (c *journalVerb) showPages(ctx context.Context, q client.JournalQuery) (printed int, err error) {
	most, backward := c.limit, c.before != ""
	if backward {
		most = min(cmp.Or(c.limit, journalAsk), journalAsk)
	}
	var later []journalAnswer
	for more := true; more; {
		q.Limit = journalAsk
		if most > 0 {
			q.Limit = min(most-printed, journalAsk)
		}
		got, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.JournalPage, error) { return cl.Journal(ctx, q) })
		if err != nil {
			return printed, err
		}
		page := journalAnswer{got, c.answer.Body}
		printed += len(page.Entries)
		key := page.Next
		if backward {
			key = page.Previous
			q.Before, later = key, append(later, page)
		} else {
			q.After = key
			if err := page.print(c); err != nil {
				return printed, err
			}
		}
		more = key != "" && (most == 0 || printed < most)
	}
	for _, page := range slices.Backward(later) {
		if err := page.print(c); err != nil {
			return printed, err
		}
	}
	return printed, nil
}

func (p *journalAnswer) print(c *journalVerb) error {
	if c.json {
		_, err := c.stdout.Write(p.raw)
		return err
	}
	for _, e := range p.Entries {
		if _, err := fmt.Fprintf(c.stdout, "%s\t%d\t%s\t%s\t%s\n", stamp(e.Time), e.Delta, cmp.Or(cli.Plain(e.Sender), "-"), cli.Plain(e.Part), cli.Plain(e.Key)); err != nil {
			return err
		}
	}
	return nil
}
