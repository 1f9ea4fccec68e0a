package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

var ruleFamily = command{
	path:  "rule",
	group: "change",
	args:  "VERB",
	short: "say which counters keep a series: their sums over time",
	long: `A rule names counters and how long their series stay. The database has the rules, so all
processes go by the same ones, within a minute of a change. A series begins with its rule:
nothing that was counted before is in it.

PATTERN is a counter's name, or a prefix followed by *. If several match a counter, its name
wins over prefixes, and a longer prefix over a shorter one.
`,
}

var ruleAddCommand = command{
	path:  "rule add",
	args:  "series PATTERN=KEEP",
	short: "add a rule, or change how long its series stay",
	long: `KEEP says how long sums stay by the minute and by the quarter hour. All longer steps, in any
time zone, are made of quarter hours.

  countmill rule add series 'page:*=1m:6h,15m:400d'
`,
	run: runRuleAdd,
}

var ruleListCommand = command{
	path:  "rule list",
	short: "list the rules, and from when each is complete",
	run:   runRuleList,
}

var ruleRemoveCommand = command{
	path:  "rule remove",
	args:  "series PATTERN",
	short: "end a rule",
	long: `Increments after this count without a series. The sums kept under the rule stay for the
promised time, and can be read.

  countmill rule remove series 'page:*'
`,
	run: runRuleRemove,
}

func runRuleAdd(ctx context.Context, c call) error {
	text, err := c.oneRule("PATTERN=KEEP")
	if err != nil {
		return err
	}
	pattern, keep, err := app.ParseSeries(text)
	if err != nil {
		return app.Usagef("%q: %s", text, err)
	}
	answer, err := c.ask(ctx, client.Request{
		Method: http.MethodPost, Path: "/v1/rules/series", Body: body(map[string]any{"pattern": pattern, "keep": keep.String()}), Safe: true,
	})
	if err != nil {
		return err
	}
	return c.printRules(answer)
}

func runRuleList(ctx context.Context, c call) error {
	if len(c.args) > 0 {
		return errArguments(c.args[0])
	}
	answer, err := c.ask(ctx, client.Request{Path: "/v1/rules"})
	if err != nil {
		return err
	}
	return c.printRules(answer)
}

func runRuleRemove(ctx context.Context, c call) error {
	pattern, err := c.oneRule("PATTERN")
	if err != nil {
		return err
	}
	answer, err := c.ask(ctx, client.Request{Method: http.MethodDelete, Path: "/v1/rules/series", Query: url.Values{"pattern": {pattern}}, Safe: true})
	if err != nil {
		return err
	}
	return c.printRules(answer)
}

// oneRule is the argument after the kind of rule.
func (c call) oneRule(what string) (string, error) {
	if len(c.args) != 2 || c.args[0] != "series" {
		return "", app.Usagef("name the kind of rule, series, and one %s, got %s", what, quoted(c.args))
	}
	return c.args[1], nil
}

func (c call) printRules(answer []byte) error {
	if c.json {
		_, err := c.stdout.Write(answer)
		return err
	}
	var got struct {
		Series []struct{ Pattern, Keep, Begin, Ended string } `json:"series"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Series == nil {
		return fmt.Errorf("the server answered with something else than rules; is that a countmill?")
	}
	if len(got.Series) == 0 {
		fmt.Fprintln(c.stderr, "no rules")
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tPATTERN\tKEEP\tCOMPLETE FROM\tENDED")
	for _, r := range got.Series {
		fmt.Fprintf(table, "series\t%s\t%s\t%s\t%s\n", plain(r.Pattern), plain(r.Keep), plain(r.Begin), plain(r.Ended))
	}
	return table.Flush()
}
