package command

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

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
	query := asOfQuery(c.minAsOf)
	if len(c.args) > 0 {
		query.Set("prefix", prefix)
	}
	for left, seen := c.limit, 0; ; {
		query.Set("limit", strconv.Itoa(lsPage))
		if c.limit > 0 {
			query.Set("limit", strconv.Itoa(min(left, lsPage)))
		}
		answer, err := c.ask(ctx, client.Request{Path: "/v1/counters", Query: query})
		if err != nil {
			return err
		}
		n, next, err := c.print(answer)
		left, seen = left-n, seen+n
		if err == nil && next == "" && seen == 0 {
			c.warnNoMatch(prefix)
		}
		if err != nil || next == "" || c.limit > 0 && left <= 0 {
			return err
		}
		query.Set("page_token", next)
	}
}

// print returns how many counters the page has, and what names the next.
func (c *lsVerb) print(answer []byte) (n int, next string, err error) {
	var page struct {
		Totals     []total  `json:"totals"`
		Overflowed []string `json:"overflowed"`
		Next       string   `json:"next_page_token"`
	}
	if err := json.Unmarshal(answer, &page); err != nil || page.Totals == nil {
		return 0, "", fmt.Errorf("the server answered with something else than counters; is that a countmill?")
	}
	n = len(page.Totals) + len(page.Overflowed)
	if c.json {
		_, err := c.stdout.Write(answer)
		return n, page.Next, err
	}
	for _, t := range page.Totals {
		for len(page.Overflowed) > 0 && page.Overflowed[0] < t.Counter {
			fmt.Fprintf(c.stdout, "overflow\t%s\n", cli.Plain(page.Overflowed[0]))
			page.Overflowed = page.Overflowed[1:]
		}
		if _, err := fmt.Fprintf(c.stdout, "%s\t%s\n", t.Total, cli.Plain(t.Counter)); err != nil {
			return n, "", err
		}
	}
	for _, name := range page.Overflowed {
		fmt.Fprintf(c.stdout, "overflow\t%s\n", cli.Plain(name))
	}
	return n, page.Next, nil
}
