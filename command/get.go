package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
)

// maxNames is the most counters of one POST /v1/totals.
const maxNames = 1000

var getCommand = command{
	name:  "get",
	args:  "NAME...",
	short: "print totals",
	long: `Prints the total of the counter NAME. With several names it prints a line for each, the
total, a tab and the name; all of one moment, at most 1,000. A counter that nobody has
incremented is 0. On a terminal a further line on standard error says how old the totals are,
and how far the aggregators are behind (lag).

  countmill get page:/home
  countmill get page:/home page:/about --json
`,
	flags: func() string {
		return `  --max-staleness DURATION
      How old a total may be; 0s reads the store. Default: the server's.
` + verbHelp
	},
	run: runGet,
}

// A total is one of the objects that the read routes answer with.
type total struct {
	Counter string      `json:"counter"`
	Total   json.Number `json:"total"` // as the server wrote it, digit for digit
}

func runGet(ctx context.Context, c call) error {
	v := newVerbFlags("get", defaultTimeout)
	stale := v.set.Duration("max-staleness", -1, "")
	names, err := v.parse(c)
	if err != nil {
		return err
	}
	if err := checkNames(names, maxNames); err != nil {
		return err
	}
	query, err := stalenessQuery(v.set, *stale)
	if err != nil {
		return err
	}
	cl, err := v.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	answer, err := cl.post(ctx, "/v1/totals"+query, nil, map[string]any{"counters": names})
	if err != nil {
		return err
	}
	if v.json {
		_, err = c.stdout.Write(answer)
		return err
	}
	if err := printTotals(c, answer, len(names)); err != nil {
		return err
	}
	if isTerminal(c.stdout) {
		fmt.Fprintln(c.stderr, ageOf(answer, time.Now()))
	}
	return nil
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

func stalenessQuery(set *pflag.FlagSet, stale time.Duration) (string, error) {
	if !set.Changed("max-staleness") {
		return "", nil
	}
	if stale < 0 {
		return "", app.Usagef("--max-staleness: must not be negative, got %s", stale)
	}
	return "?max_staleness=" + url.QueryEscape(stale.String()), nil
}

func printTotals(c call, answer []byte, want int) error {
	var got struct {
		Totals []total `json:"totals"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Totals) != want {
		return fmt.Errorf("the server answered with something else than %d totals; is that a countmill?", want)
	}
	for _, t := range got.Totals {
		if want == 1 {
			fmt.Fprintln(c.stdout, t.Total)
			return nil
		}
		fmt.Fprintf(c.stdout, "%s\t%s\n", t.Total, t.Counter)
	}
	return nil
}
