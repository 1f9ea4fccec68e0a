package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var shardsCommand = cli.Command{
	Path:  "shards",
	Group: "look",
	Args:  "NAME",
	Short: "print the count of each shard of a counter",
	Long: `Prints a line for each shard of the counter NAME that was written: its number, its count,
when it was last written, if the store knows that, and its problem, if it has one
("countmill help verify" says more). On a terminal there is a bar for each count. Negative
counts have bars too: they show the size.

Counts differ, as commits do. A shard that was never written is not shown. Shards that came
later have less. Aggregators give a counter more of them when it needs more. A reset or delete
changes no shard: the total is the sum of the counts, minus the part that resets subtracted.
`,
	New: func() cli.Verb { return new(shardsVerb) },
}

// A shardCount is one of a counter's shards.
type shardCount struct {
	Shard   int    `json:"shard"`
	Count   *int64 `json:"count"`
	Updated string `json:"updated"`
	Problem string `json:"problem"`
}

// A shardList is the answer of GET /v1/shards.
type shardList struct {
	Counter string       `json:"counter"`
	AsOf    string       `json:"as_of"`
	Exists  *bool        `json:"exists"`
	Shards  int          `json:"shards"`
	Counts  []shardCount `json:"counts"`
}

type shardsVerb struct{ calling }

func (c *shardsVerb) Run(ctx context.Context) error {
	name, err := c.oneName()
	if err != nil {
		return err
	}
	answer, err := c.ask(ctx, client.Request{Path: "/v1/shards", Query: url.Values{"counter": {name}}})
	if err != nil {
		return err
	}
	var got shardList
	err = json.Unmarshal(answer, &got)
	c.sayMissingOne(name, got.Exists)
	if c.json {
		_, err = c.stdout.Write(answer)
		return err
	}
	if err != nil || got.Counts == nil {
		return fmt.Errorf("the server answered with something else than shards; is that a countmill?")
	}
	return got.print(c.stdout, cli.IsTerminal(c.stdout))
}

// print draws bars for a person; a program gets the columns alone.
func (l *shardList) print(out io.Writer, bars bool) error {
	if bars {
		fmt.Fprintf(out, "%s: %d shards written, %d in the record\n", l.Counter, len(l.Counts), l.Shards)
	}
	largest := 0.0
	for _, s := range l.Counts {
		if s.Count != nil {
			largest = max(largest, math.Abs(float64(*s.Count)))
		}
	}
	for _, s := range l.Counts {
		count := "overflow"
		if s.Count != nil {
			count = fmt.Sprint(*s.Count)
		}
		line := fmt.Sprintf("%d\t%s\t%s\t%s", s.Shard, count, shortTime(s.Updated), cli.Plain(s.Problem))
		if bars {
			line = fmt.Sprintf("%3d %20s %s %s %s", s.Shard, count, bar(s.Count, largest), l.age(s.Updated), cli.Plain(s.Problem))
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \t")); err != nil {
			return err
		}
	}
	return nil
}

// bar is as long as the count is large. The bar of a small count is visible, if it is not 0.
func bar(count *int64, largest float64) string {
	const width = 30
	n := 0
	if count != nil && *count != 0 {
		n = max(1, int(math.Round(width*math.Abs(float64(*count))/largest)))
	}
	return fmt.Sprintf("%-*s", width, strings.Repeat("#", n))
}

// age is how long before the answer the shard was written.
func (l *shardList) age(updated string) string {
	then, err := time.Parse(time.RFC3339Nano, updated)
	now, err2 := time.Parse(time.RFC3339Nano, l.AsOf)
	if err != nil || err2 != nil {
		return ""
	}
	return "written " + now.Sub(then).Round(time.Second).String() + " ago"
}
