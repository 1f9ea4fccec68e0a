package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

// maxNames is the most counters of one POST /v1/totals.
const maxNames = 1000

var getCommand = command{
	path:  "get",
	group: "count",
	args:  "NAME...",
	short: "print totals",
	long: `Prints the total of the counter NAME. With several names it prints a line for each, the
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
	run: runGet,
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

func runGet(ctx context.Context, c call) error {
	names, err := c.withGroups()
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
	if err := printTotals(c, answer, len(names)); err != nil {
		return err
	}
	if err := overflowOf(answer); err != nil {
		return err
	}
	c.sayMissing(answer)
	sayDeadLetters(c, answer)
	if isTerminal(c.stdout) {
		fmt.Fprintln(c.stderr, ageOf(answer, time.Now()))
	}
	return nil
}

// readQuery is the parameters of a read that flags gave.
func (c call) readQuery() url.Values {
	query := url.Values{}
	if c.given("max-staleness") {
		query.Set("max_staleness", c.maxStaleness.String())
	}
	if c.given("min-as-of") {
		query.Set("min_as_of", c.minAsOf)
	}
	if c.given("after") {
		query.Set("after", c.after)
	}
	if c.given("wait") {
		query.Set("wait", c.wait.String())
	}
	return query
}

// sayDeadLetters names the dead letters with increments of a receipt.
func sayDeadLetters(c call, answer []byte) {
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
		fmt.Fprintf(c.stderr, "countmill: increments of the receipt are in dead letter %s: %s\n", s.Key, state)
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

func printTotals(c call, answer []byte, want int) error {
	var got struct {
		Totals []total `json:"totals"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Totals) != want {
		return fmt.Errorf("the server answered with something else than %d totals; is that a countmill?", want)
	}
	for _, t := range got.Totals {
		switch {
		case want > 1:
			fmt.Fprintf(c.stdout, "%s\t%s\n", t.text(), t.Counter)
		case t.Error == "":
			fmt.Fprintln(c.stdout, t.Total)
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
	return fmt.Errorf("%w: counter %s", countmill.ErrOverflow, quoted(names))
}
