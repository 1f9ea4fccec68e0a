package main

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
incremented is 0.

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
	return printTotals(c, answer, len(names))
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
