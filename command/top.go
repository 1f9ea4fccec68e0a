package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

var topCommand = command{
	path:  "top",
	group: "count",
	args:  "INDEX",
	short: "print the best counters of an index",
	long: `Prints a line for each of the best counters of the index: its place, its total, and its name.
Equal totals share a place, and the next place counts them.
The order is that of a look at all counters, some seconds ago; a line on standard error says when.
A window orders by the increments of a calendar day, week or month of a zone, or in the last hour; it needs a
rule for series ("countmill help rule").

  countmill top sites
  countmill top sites -n 100 --window today --tz Asia/Kolkata
  countmill top sites --of groups
`,
	run: runTop,
}

var rankCommand = command{
	path:  "rank",
	group: "count",
	args:  "INDEX COUNTER",
	short: "print the place of a counter in an index",
	long: `Prints the place of the counter, or of the group, among all of the index, and its total.

  countmill rank sites page:s1:/home
  countmill rank sites --group site:s1
`,
	run: runRank,
}

// boardQuery is the parameters that top and rank have in common.
func (c call) boardQuery(index string) (url.Values, error) {
	query := url.Values{"index": {index}}
	if c.given("tz") && c.boardWindow == "" {
		return nil, app.Usagef("--tz is given without --window (limit: with --window today, this-week or this-month)")
	}
	if c.boardWindow != "" {
		query.Set("window", c.boardWindow)
		query.Set("tz", c.tz)
	}
	return query, nil
}

func runTop(ctx context.Context, c call) error {
	if len(c.args) != 1 {
		return app.Usagef("name one INDEX, got %s", quoted(c.args))
	}
	query, err := c.boardQuery(c.args[0])
	if err != nil {
		return err
	}
	query.Set("n", strconv.Itoa(c.best))
	if c.bestOf != "counters" {
		query.Set("of", c.bestOf)
	}
	answer, err := c.ask(ctx, client.Request{Path: "/v1/top", Query: query})
	if err != nil {
		return err
	}
	if c.json {
		_, err := c.stdout.Write(answer)
		return err
	}
	var got struct {
		Top []struct {
			Counter string `json:"counter"`
			Total   int64  `json:"total"`
			Rank    int    `json:"rank"`
		} `json:"top"`
		Overflowed []string `json:"overflowed"`
		boardScan
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Top == nil {
		return fmt.Errorf("the server answered with something else than a top; is that a countmill?")
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, t := range got.Top {
		fmt.Fprintf(table, "%d\t%d\t  %s\n", t.Rank, t.Total, plain(t.Counter))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(got.Overflowed) > 0 {
		fmt.Fprintf(c.stderr, "these have no place, because their totals do not fit 64 bits: %s\n", quoted(got.Overflowed))
	}
	switch {
	case len(got.Top) == 0 && c.boardWindow != "":
		fmt.Fprintf(c.stderr, "no %s counted in this window\n", c.bestOf)
	case len(got.Top) == 0:
		fmt.Fprintf(c.stderr, "no %s of the index have a total\n", c.bestOf)
	}
	got.say(c)
	return nil
}

func runRank(ctx context.Context, c call) error {
	names, err := c.withGroups()
	if err != nil {
		return err
	}
	if len(names) != 2 || len(c.args) == 0 {
		return app.Usagef("name one INDEX and one COUNTER or --group, got %s", quoted(names))
	}
	counter := names[1]
	query, err := c.boardQuery(c.args[0])
	if err != nil {
		return err
	}
	query.Set("counter", counter)
	answer, err := c.ask(ctx, client.Request{Path: "/v1/rank", Query: query})
	if err != nil {
		return err
	}
	if c.json {
		_, err := c.stdout.Write(answer)
		return err
	}
	var got struct {
		Total *int64 `json:"total"`
		Rank  *int   `json:"rank"`
		Of    int    `json:"of"`
		boardScan
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Total == nil {
		return fmt.Errorf("the server answered with something else than a rank; is that a countmill?")
	}
	if got.Rank == nil {
		return fmt.Errorf("counter %q has no place: it counted nothing", plain(counter))
	}
	if _, err := fmt.Fprintf(c.stdout, "%d of %d\t%d\t%s\n", *got.Rank, got.Of, *got.Total, plain(counter)); err != nil {
		return err
	}
	got.say(c)
	return nil
}

// boardScan says what the look at all counters was from which an answer comes.
type boardScan struct {
	CompleteAsOf string `json:"complete_as_of"`
	Partial      bool   `json:"partial"`
}

// say writes to standard error.
func (s *boardScan) say(c call) {
	fmt.Fprintf(c.stderr, "complete as of %s\n", plain(s.CompleteAsOf))
	if s.Partial {
		fmt.Fprintln(c.stderr, "increments of the window are missing: it began before its rule for series, or no rule keeps the overflow group")
	}
}
