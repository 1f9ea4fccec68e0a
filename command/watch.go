package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var watchCommand = cli.Command{
	Path:  "watch",
	Group: "count",
	Args:  "[NAME...]",
	Short: "print totals as they change, until Ctrl-C",
	Long: `Prints a line for the total of each counter, and one whenever it changes: the total, a tab
and the name. Give at most 100 names, or --prefix for the counters whose names begin so. A new
counter is there within 10 s.

  countmill watch page:/home orders
  countmill watch --prefix page: --limit 500

Lines on standard error report totals that cannot be read for a while, counters that left
(deleted, or beyond --limit), and counters beyond --limit at the start. --json prints each of
the server's events as one line: the first has all totals, and others the changed ones.
Ctrl-C ends it with 0. It ends with 1 if the server ends or sends nothing for 45 s, and does not
reconnect.
`,
	New: func() cli.Verb { return new(watchVerb) },
}

const (
	// maxWatched is the most counters of one GET /v1/watch.
	maxWatched = 100

	// maxWatchLimit is the most counters of one GET /v1/watch with a prefix.
	maxWatchLimit = 1000
)

type watchVerb struct {
	calling
	minAsOf, prefix string
	groups          []string
	limit           int

	last      map[string]string // the lines printed last, by counter
	truncated bool              // a line has reported it
}

func (c *watchVerb) Flags() []cli.Flag {
	c.limit = 100
	return c.flags(usual, "Write the server's events as they are.",
		minAsOfFlag(&c.minAsOf),
		groupFlag(&c.groups),
		cli.New("prefix", "PREFIX", cli.Any(&c.prefix), "Watch the counters whose names begin with PREFIX, instead of NAMEs.").Default("none"),
		cli.New("limit", "N", cli.Count{To: &c.limit, Min: 1, Max: maxWatchLimit}, "With --prefix: the most counters, the first ones by name."),
	)
}

func (c *watchVerb) Run(ctx context.Context) error {
	query, err := c.watchQuery()
	if err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	c.last = make(map[string]string)
	for e, err := range cl.Events(ctx, client.Request{Path: "/v1/watch", Query: query}) {
		if ctx.Err() != nil {
			return nil // Ctrl-C is how it ends
		}
		if err == nil {
			err = c.print(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// watchQuery is the query for the names, or for the prefix.
func (c *watchVerb) watchQuery() (url.Values, error) {
	names, err := withGroups(c.args, c.groups)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	set("min_as_of", c.minAsOf)(query)
	switch {
	case c.Given("prefix") && len(names) > 0:
		return nil, cli.Usagef("--prefix and NAME exclude each other")
	case c.Given("prefix"):
		c.warnStars(c.prefix)
		query.Set("prefix", c.prefix)
		query.Set("limit", strconv.Itoa(c.limit))
		return query, nil
	case c.Given("limit"):
		return nil, cli.Usagef("--limit needs --prefix")
	case len(names) == 0:
		return nil, cli.Usagef("NAME is missing, or --prefix")
	}
	query["counter"] = names
	return query, checkNames(names, maxWatched)
}

func (c *watchVerb) print(e client.Event) error {
	if c.json {
		_, err := fmt.Fprintf(c.stdout, "%s\n", e.Data)
		return err
	}
	if problem := e.Problem(); problem != nil {
		_, err := fmt.Fprintf(c.stderr, "countmill: %v; still watching\n", problem)
		return err
	}
	var got client.WatchEvent
	if err := json.Unmarshal(e.Data, &got); err != nil {
		return fmt.Errorf("the server sent an event that is not JSON: %w; is that a countmill?", err)
	}
	return c.printTotals(&got)
}

func (c *watchVerb) printTotals(e *client.WatchEvent) error {
	for _, t := range e.Totals {
		line := totalText(&t) + "\t" + cli.Plain(t.Counter)
		if c.last[t.Counter] == line { // its shards have changed
			continue
		}
		if c.last[t.Counter] == "" {
			c.sayMissingOne(t.Counter, t.Exists)
		}
		c.last[t.Counter] = line
		if _, err := fmt.Fprintln(c.stdout, line); err != nil {
			return err
		}
	}
	for _, name := range e.Removed {
		delete(c.last, name)
		fmt.Fprintf(c.stderr, "countmill: %s is watched no longer\n", cli.Plain(name))
	}
	if e.Truncated && !c.truncated {
		fmt.Fprintf(c.stderr, "countmill: more counters begin with the prefix (--limit %d)\n", c.limit)
	}
	c.truncated = e.Truncated
	return nil
}
