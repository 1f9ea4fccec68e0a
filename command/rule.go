package command

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/store"
)

var ruleFamily = cli.Command{
	Path:  "rule",
	Group: "change",
	Args:  "VERB",
	Short: "choose the counters that keep a series or a journal",
	Long: `A rule names counters. Counters under a rule for series keep their sums over time, and of counters
under a rule for the journal each increment stays as evidence. The database has the rules, so all
processes go by the same ones, within a minute of a change. A series or a journal begins with its
rule: nothing that was counted before is in it.

PATTERN is a counter's name, or a prefix followed by *. If several match a counter, its name
wins over prefixes, and a longer prefix over a shorter one.
`,
}

var ruleAddCommand = cli.Command{
	Path:  "rule add",
	Args:  "series|journal PATTERN=KEEP",
	Short: "add a rule, or change how long it keeps",
	Long: `For series KEEP says how long sums stay by the minute and by the quarter hour. All longer steps, in
any time zone, are made of quarter hours.

  countmill rule add series 'page:*=1m:6h,15m:400d'

For the journal KEEP says how long the evidence stays. With ,paged each increment is also written
under its counter, so that a page of "countmill journal" costs what it shows.

  countmill rule add journal 'billing:*=400d'
  countmill rule add journal 'invoice:*=400d,paged'
`,
	New: func() cli.Verb { return new(ruleAddVerb) },
}

var ruleListCommand = cli.Command{
	Path:  "rule list",
	Short: "list the rules, and from when each is complete",
	New:   func() cli.Verb { return new(ruleListVerb) },
}

var ruleRemoveCommand = cli.Command{
	Path:  "rule remove",
	Args:  "series|journal PATTERN",
	Short: "end a rule",
	Long: `Increments after this count without a series or a journal. What was kept under the rule stays for
the promised time, and can be read.

  countmill rule remove series 'page:*'
  countmill rule remove journal 'billing:*'
`,
	New: func() cli.Verb { return new(ruleRemoveVerb) },
}

type ruleAddVerb struct{ calling }

func (c *ruleAddVerb) Run(ctx context.Context) error {
	kind, text, err := c.oneRule("PATTERN=KEEP")
	if err != nil {
		return err
	}
	pattern, keep, err := parseRule(kind, text)
	if err != nil {
		return cli.Usagef("%q: %s", text, err)
	}
	c.warnInnerStar(pattern)
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Rules, error) {
		return cl.AddRule(ctx, client.RuleKind(kind), pattern, keep)
	}, c.printRules)
}

type ruleListVerb struct{ calling }

func (c *ruleListVerb) Run(ctx context.Context) error {
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Rules, error) { return cl.Rules(ctx) }, c.printRules)
}

type ruleRemoveVerb struct{ calling }

func (c *ruleRemoveVerb) Run(ctx context.Context) error {
	kind, pattern, err := c.oneRule("PATTERN")
	if err != nil {
		return err
	}
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Rules, error) {
		return cl.RemoveRule(ctx, client.RuleKind(kind), pattern)
	}, c.printRules)
}

// oneRule is the kind of rule and the argument after it.
func (c *call) oneRule(what string) (kind, text string, err error) {
	if len(c.args) != 2 || c.args[0] != "series" && c.args[0] != "journal" {
		return "", "", cli.Usagef("name the kind of rule, series or journal, and one %s, got %s", what, cli.Quoted(c.args))
	}
	return c.args[0], c.args[1], nil
}

// parseRule reads PATTERN=KEEP, and returns KEEP as the server writes it.
func parseRule(kind, text string) (pattern, keep string, err error) {
	of := store.KindSeries
	if kind == "journal" {
		of = store.KindJournal
	}
	pattern, retention, err := store.ParseRule(of, text)
	return pattern, retention.String(), err
}

func (c *calling) printRules(got client.Rules) error {
	if len(got.Series)+len(got.Journal) == 0 {
		fmt.Fprintln(c.stderr, "no rules")
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tPATTERN\tKEEP\tCOMPLETE FROM\tENDED")
	line := func(kind string, r client.Rule) {
		begin := shortStamp(r.Begin)
		if r.FilledFrom != nil && r.FilledTo != nil {
			begin += fmt.Sprintf(", and %s to %s", shortStamp(*r.FilledFrom), shortStamp(*r.FilledTo))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", kind, cli.Plain(r.Pattern), cli.Plain(r.Keep), begin, shortStamp(orZero(r.Ended)))
	}
	for _, r := range got.Series {
		line("series", r)
	}
	for _, r := range got.Journal {
		line("journal", r)
	}
	return table.Flush()
}

// orZero is a time, or the zero time for none.
func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
