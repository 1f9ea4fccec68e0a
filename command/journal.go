package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"

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
	query := url.Values{"counter": c.args}
	for name, value := range map[string]string{"id": c.id, "after": c.after, "before": c.before} {
		if value != "" {
			query.Set(name, value)
		}
	}
	printed, err := c.showPages(query, func() (*journalPage, error) {
		answer, err := c.ask(ctx, client.Request{Path: "/v1/journal", Query: query})
		if err != nil {
			return nil, err
		}
		page := &journalPage{answer: answer}
		if err := json.Unmarshal(answer, page); err != nil || page.Entries == nil {
			return nil, fmt.Errorf("the server answered with something else than a journal; is that a countmill?")
		}
		return page, nil
	})
	if err == nil && printed == 0 && !c.json {
		fmt.Fprintln(c.stderr, "no entries; countmill rule list shows which counters have a journal")
	}
	return err
}

// A journalPage is an answer of the server.
type journalPage struct {
	Entries []struct {
		Key, Time, Part, Sender string
		Delta                   json.Number
	}
	Next, Previous string

	answer []byte
}

// showPages prints the pages of a query, and returns the number of their entries. Those before a key come from the last page to
// the first one: a page may be short, or empty, although others are before it.
func (c *journalVerb) showPages(query url.Values, ask func() (*journalPage, error)) (printed int, err error) {
	most, backward := c.limit, c.before != ""
	if backward {
		most = min(cmp.Or(c.limit, journalAsk), journalAsk)
	}
	var later []*journalPage
	for more := true; more; {
		limit := journalAsk
		if most > 0 {
			limit = min(most-printed, journalAsk)
		}
		query.Set("limit", strconv.Itoa(limit))
		page, err := ask()
		if err != nil {
			return printed, err
		}
		printed += len(page.Entries)
		side, key := "after", page.Next
		if backward {
			side, key = "before", page.Previous
			later = append(later, page)
		} else if err := page.print(c); err != nil {
			return printed, err
		}
		query.Set(side, key)
		more = key != "" && (most == 0 || printed < most)
	}
	for _, page := range slices.Backward(later) {
		if err := page.print(c); err != nil {
			return printed, err
		}
	}
	return printed, nil
}

func (p *journalPage) print(c *journalVerb) error {
	if c.json {
		_, err := c.stdout.Write(p.answer)
		return err
	}
	for _, e := range p.Entries {
		sender := cli.Plain(e.Sender)
		if sender == "" {
			sender = "-"
		}
		if _, err := fmt.Fprintf(c.stdout, "%s\t%s\t%s\t%s\t%s\n", cli.Plain(e.Time), e.Delta, sender, cli.Plain(e.Part), cli.Plain(e.Key)); err != nil {
			return err
		}
	}
	return nil
}
