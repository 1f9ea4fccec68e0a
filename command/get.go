package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

// A total is one of the objects that the read routes answer with.
type total struct {
	Counter string      `json:"counter"`
	Total   json.Number `json:"total"` // as the server wrote it, digit for digit
	Error   string      `json:"error"` // the type of a problem if there is no total
}

// text is the total, or "overflow" as in ls.
func (t *total) text() string {
	if t.Error != "" {
		return "overflow"
	}
	return t.Total.String()
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
	answer, err := c.ask(ctx, client.Request{
		Method: http.MethodPost, Path: "/v1/totals", Query: c.readQuery(), Body: body(map[string]any{"counters": names}),
	})
	if err != nil {
		return err
	}
	if c.json {
		c.sayMissing(answer)
		if _, err := c.stdout.Write(answer); err != nil {
			return err
		}
		return overflowOf(answer)
	}
	if err := printTotals(c.stdout, answer, len(names)); err != nil {
		return err
	}
	if err := overflowOf(answer); err != nil {
		return err
	}
	c.sayMissing(answer)
	sayDeadLetters(c.stderr, answer)
	if cli.IsTerminal(c.stdout) {
		fmt.Fprintln(c.stderr, ageOf(answer, time.Now()))
	}
	return nil
}

// readQuery is the parameters of a read that flags gave.
func (c *getVerb) readQuery() url.Values {
	query := asOfQuery(c.minAsOf)
	if c.Given("max-staleness") {
		query.Set("max_staleness", c.maxStaleness.String())
	}
	if c.Given("after") {
		query.Set("after", c.after)
	}
	if c.Given("wait") {
		query.Set("wait", c.wait.String())
	}
	return query
}

// asOfQuery is the parameter of --min-as-of, if it is given.
func asOfQuery(minAsOf string) url.Values {
	if minAsOf == "" {
		return url.Values{}
	}
	return url.Values{"min_as_of": {minAsOf}}
}

// sayDeadLetters names the dead letters with increments of a receipt.
func sayDeadLetters(out io.Writer, answer []byte) {
	var got struct {
		DeadLetters []struct {
			Key       string `json:"key"`
			Discarded bool   `json:"discarded"`
		} `json:"dead_letters"`
	}
	_ = json.Unmarshal(answer, &got) // printTotals has read it
	for _, s := range got.DeadLetters {
		state := "see countmill dead show " + s.Key
		if s.Discarded {
			state = "it was discarded"
		}
		fmt.Fprintf(out, "countmill: increments of the receipt are in dead letter %s: %s\n", s.Key, state)
	}
}

// ageOf says how old the totals of an answer are, and how far the aggregators are behind.
func ageOf(answer []byte, now time.Time) string {
	var got struct {
		Totals []struct {
			AsOf time.Time `json:"as_of"`
		} `json:"totals"`
		Lag *float64 `json:"lag"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Totals) == 0 {
		return "age and lag are unknown"
	}
	asOf := got.Totals[0].AsOf
	line := fmt.Sprintf("as of %s, %.1fs ago", asOf.Format(time.RFC3339), max(now.Sub(asOf), 0).Seconds())
	if got.Lag == nil {
		return line + "; lag unknown: no aggregator has reported lately"
	}
	return line + fmt.Sprintf("; lag %.1fs", *got.Lag)
}

func printTotals(out io.Writer, answer []byte, want int) error {
	var got struct {
		Totals []total `json:"totals"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Totals) != want {
		return fmt.Errorf("the server answered with something else than %d totals; is that a countmill?", want)
	}
	for _, t := range got.Totals {
		switch {
		case want > 1:
			fmt.Fprintf(out, "%s\t%s\n", t.text(), t.Counter)
		case t.Error == "":
			fmt.Fprintln(out, t.Total)
		}
	}
	return nil
}

// overflowOf is the error that totals of an answer do not fit 64 bits.
func overflowOf(answer []byte) error {
	var got struct {
		Totals []total `json:"totals"`
	}
	_ = json.Unmarshal(answer, &got) // printTotals has read it
	var names []string
	for _, t := range got.Totals {
		if t.Error != "" {
			names = append(names, t.Counter)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: counter %s", countmill.ErrOverflow, cli.Quoted(names))
}
