package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/countmill/countmill/internal/app"
)

var lsCommand = command{
	name:  "ls",
	args:  "[PREFIX]",
	short: "print the totals of all counters that begin with PREFIX",
	long: `Prints a line for each counter whose name begins with PREFIX, or for all: the total, a tab
and the name, in the order of names as bytes. It reads them page by page; the totals of one
page are of one moment. A total that does not fit 64 bits is shown as overflow. Characters
that a terminal would not print are written as \u202E; --json has names as they are.

  countmill ls page:
  countmill ls page: --limit 20
`,
	flags: func() string {
		return `  --limit N
      Stop after N counters. Default 0: all.
  --server URL
      The countmill to talk to. Default http://` + app.DefaultListen + `. [COUNTMILL_SERVER]
  --timeout DURATION
      How long to wait for each page. Default 15s. [COUNTMILL_TIMEOUT]
  --json
      Write the server's answers as they are, a page a line.
` + tokenHelp
	},
	run: runLs,
}

// lsPage is how many counters are asked for at a time.
const lsPage = 1000

func runLs(ctx context.Context, c call) error {
	v := newVerbFlags("ls", defaultTimeout)
	limit := v.set.Int("limit", 0, "")
	args, err := v.parse(c)
	if err != nil {
		return err
	}
	if len(args) > 1 {
		return app.Usagef("too many arguments: %q (quote a prefix that holds spaces)", args[1])
	}
	if *limit < 0 {
		return app.Usagef("--limit: must not be negative, got %d", *limit)
	}
	query := url.Values{}
	if len(args) == 1 {
		query.Set("prefix", args[0])
	}
	cl, err := v.client()
	if err != nil {
		return err
	}
	for left := *limit; ; {
		query.Set("limit", strconv.Itoa(lsPage))
		if *limit > 0 {
			query.Set("limit", strconv.Itoa(min(left, lsPage)))
		}
		answer, err := cl.get(ctx, v.timeout, "/v1/counters?"+query.Encode())
		if err != nil {
			return err
		}
		n, next, err := printPage(c, answer, v.json)
		if left -= n; err != nil || next == "" || *limit > 0 && left <= 0 {
			return err
		}
		query.Set("page_token", next)
	}
}

// printPage returns how many counters the page has, and what names the next.
func printPage(c call, answer []byte, asJSON bool) (n int, next string, err error) {
	var page struct {
		Totals     []total  `json:"totals"`
		Overflowed []string `json:"overflowed"`
		Next       string   `json:"next_page_token"`
	}
	if err := json.Unmarshal(answer, &page); err != nil || page.Totals == nil {
		return 0, "", fmt.Errorf("the server answered with something else than counters; is that a countmill?")
	}
	n = len(page.Totals) + len(page.Overflowed)
	if asJSON {
		_, err := c.stdout.Write(answer)
		return n, page.Next, err
	}
	for _, t := range page.Totals {
		for len(page.Overflowed) > 0 && page.Overflowed[0] < t.Counter {
			fmt.Fprintf(c.stdout, "overflow\t%s\n", plain(page.Overflowed[0]))
			page.Overflowed = page.Overflowed[1:]
		}
		if _, err := fmt.Fprintf(c.stdout, "%s\t%s\n", t.Total, plain(t.Counter)); err != nil {
			return n, "", err
		}
	}
	for _, name := range page.Overflowed {
		fmt.Fprintf(c.stdout, "overflow\t%s\n", plain(name))
	}
	return n, page.Next, nil
}
