package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/store"
)

var ruleFamily = command{
	path:  "rule",
	group: "change",
	args:  "VERB",
	short: "choose the counters that keep a series or a journal",
	long: `A rule names counters. Counters under a rule for series keep their sums over time, and of counters
under a rule for the journal each increment stays as evidence. The database has the rules, so all
processes go by the same ones, within a minute of a change. A series or a journal begins with its
rule: nothing that was counted before is in it.

PATTERN is a counter's name, or a prefix followed by *. If several match a counter, its name
wins over prefixes, and a longer prefix over a shorter one.
`,
}

var ruleAddCommand = command{
	path:  "rule add",
	args:  "series|journal PATTERN=KEEP",
	short: "add a rule, or change how long it keeps",
	long: `For series KEEP says how long sums stay by the minute and by the quarter hour. All longer steps, in
any time zone, are made of quarter hours.

  countmill rule add series 'page:*=1m:6h,15m:400d'

For the journal KEEP says how long the evidence stays. With ,paged each increment is also written
under its counter, so that a page of "countmill journal" costs what it shows.

  countmill rule add journal 'billing:*=400d'
  countmill rule add journal 'invoice:*=400d,paged'
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
	args:  "series|journal PATTERN",
	short: "end a rule",
	long: `Increments after this count without a series or a journal. What was kept under the rule stays for
the promised time, and can be read.

  countmill rule remove series 'page:*'
  countmill rule remove journal 'billing:*'
`,
	run: runRuleRemove,
}

func runRuleAdd(ctx context.Context, c call) error {
	kind, text, err := c.oneRule("PATTERN=KEEP")
	if err != nil {
		return err
	}
	pattern, keep, err := parseRule(kind, text)
	if err != nil {
		return app.Usagef("%q: %s", text, err)
	}
	c.warnInnerStar(pattern)
	answer, err := c.ask(ctx, addRule(kind, pattern, keep))
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
	kind, pattern, err := c.oneRule("PATTERN")
	if err != nil {
		return err
	}
	answer, err := c.ask(ctx, client.Request{Method: http.MethodDelete, Path: "/v1/rules/" + kind, Query: url.Values{"pattern": {pattern}}, Safe: true})
	if err != nil {
		return err
	}
	return c.printRules(answer)
}

// oneRule is the kind of rule and the argument after it.
func (c call) oneRule(what string) (kind, text string, err error) {
	if len(c.args) != 2 || c.args[0] != "series" && c.args[0] != "journal" {
		return "", "", app.Usagef("name the kind of rule, series or journal, and one %s, got %s", what, quoted(c.args))
	}
	return c.args[0], c.args[1], nil
}

// parseRule reads PATTERN=KEEP, and returns KEEP as the server writes it.
func parseRule(kind, text string) (pattern, keep string, err error) {
	at := strings.LastIndex(text, "=")
	if at < 0 {
		return "", "", errors.New("has no =; write PATTERN=KEEP, such as page:*=1m:6h,15m:400d for series or billing:*=400d for the journal")
	}
	if pattern, keep = text[:at], text[at+1:]; kind == "journal" {
		change, err := store.ParseJournalKeep(keep)
		return pattern, change.String(), errors.Join(store.CheckPattern(pattern), err)
	}
	retention, err := store.ParseRetention(keep)
	return pattern, retention.String(), errors.Join(store.CheckPattern(pattern), err)
}

// A ruleState is a rule of GET /v1/rules.
type ruleState struct {
	Pattern, Keep, Begin, Ended string
	FilledFrom                  string `json:"filled_from"`
	FilledTo                    string `json:"filled_to"`
}

type ruleStates struct{ Series, Journal []ruleState }

func readRules(answer []byte) (got ruleStates, err error) {
	if err := json.Unmarshal(answer, &got); err != nil || got.Series == nil {
		return got, fmt.Errorf("the server answered with something else than rules; is that a countmill?")
	}
	return got, nil
}

func (c call) printRules(answer []byte) error {
	if c.json {
		_, err := c.stdout.Write(answer)
		return err
	}
	got, err := readRules(answer)
	if err != nil {
		return err
	}
	if len(got.Series)+len(got.Journal) == 0 {
		fmt.Fprintln(c.stderr, "no rules")
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tPATTERN\tKEEP\tCOMPLETE FROM\tENDED")
	line := func(kind string, r ruleState) {
		begin := plain(r.Begin)
		if r.FilledTo != "" {
			begin += fmt.Sprintf(", and %s to %s", plain(r.FilledFrom), plain(r.FilledTo))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", kind, plain(r.Pattern), plain(r.Keep), begin, plain(r.Ended))
	}
	for _, r := range got.Series {
		line("series", r)
	}
	for _, r := range got.Journal {
		line("journal", r)
	}
	return table.Flush()
}
