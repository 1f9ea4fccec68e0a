package command

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/units"
	"github.com/countmill/countmill/store"
)

var indexFamily = cli.Command{
	Path:  "index",
	Group: "change",
	Args:  "VERB",
	Short: "put counters into groups, whose totals are their sums",
	Long: `An index names counters and the group of each. Each increment is added to its counter and
to its group in one commit. Increments that were counted before the index are added to the groups
while everything runs. Until that is done the index is building, and its groups have no totals.

  countmill index create sites --match 'page:{site}:*' --group 'site:{site}' --wait
  countmill get --group site:s1

docs/howto/groups.md has the whole story.
`,
}

var indexCreateCommand = cli.Command{
	Path:  "index create",
	Args:  "NAME",
	Short: "create an index, and build its groups from the totals so far",
	Long: `--match names counters: text, variables in braces, and perhaps a * at the end for any rest. --group names
the group of a counter by those variables. A variable is at least one byte, up to the first place
where the text after it comes. Groups are counters whose names begin with =. Nobody can increment
them. Repeating the command changes nothing.

  countmill index create sites --match 'page:{site}:*' --group 'site:{site}'
  countmill index create sites --match 'page:{site}:*' --group 'site:{site}' --series 1m:6h,15m:400d

--series first adds two rules for series ("countmill help rule add"): page:* for the counters, and =site:*
for the groups. Curves and the top of a day need them. With tokens it needs a token for all counters.

--wait shows the progress until the groups can be read. It needs the scope read beside admin.
`,
	New: func() cli.Verb { return new(indexCreateVerb) },
}

var indexListCommand = cli.Command{
	Path:  "index list",
	Short: "list the indexes, and how far the work at each is",
	New:   func() cli.Verb { return new(indexListVerb) },
}

var indexDeleteCommand = cli.Command{
	Path:  "index delete",
	Args:  "NAME",
	Short: "delete an index and all its groups",
	Long: `The groups cannot be read from now on. Workers remove them after a minute, with datastore: or
postgres: after ten, and the name of the index is free when everything of it is gone. The counters stay.

--wait shows the progress until then. It needs the scope read beside admin.
`,
	New: func() cli.Verb { return new(indexDeleteVerb) },
}

var indexWorkCommand = cli.Command{
	Path:  "index work",
	Short: "run only a worker that builds, checks and deletes indexes",
	Long: `Works at the indexes of a store that other processes write. "countmill up" does that by itself: on one
machine this command is not needed. Several workers share the work. A killed worker loses
nothing: after a minute another one takes its range.

  countmill index work --store datastore://my-project
`,
	New: func() cli.Verb { return newRoles(app.Indexer) },
}

// An indexing verb may wait for the work at an index.
type indexing struct {
	calling
	waits bool
}

func (c *indexing) waitFlag() cli.Flag {
	return cli.Switch("wait", &c.waits, "Show the progress, and end when the work is done.")
}

// indexProgress is in words: a percentage while the state is about to change.
func indexProgress(x *client.Index) string {
	if x.State == "serving" || x.Ranges == nil || *x.Ranges == 0 {
		return x.State
	}
	return fmt.Sprintf("%s %d %%", x.State, 100**x.RangesDone / *x.Ranges)
}

type indexCreateVerb struct {
	indexing
	match, group, series string
}

func (c *indexCreateVerb) Flags() []cli.Flag {
	return c.flags(usual, oneAnswer,
		cli.New("match", "PATTERN", cli.Any(&c.match), "The counters of the index, such as 'page:{site}:*'.").Default("none; needed"),
		cli.New("group", "PATTERN", cli.Any(&c.group), "The group of a counter, such as 'site:{site}'.").Default("none; needed"),
		cli.New("series", "KEEP", cli.Any(&c.series),
			"First add rules by which the counters and the groups keep series, such as 1m:6h,15m:400d. A rule that keeps something else is not changed: the command then does nothing.").Default("none"),
		c.waitFlag(),
	)
}

func (c *indexCreateVerb) Run(ctx context.Context) error {
	name, err := c.oneIndex()
	if err != nil {
		return err
	}
	if c.match == "" || c.group == "" {
		return cli.Usagef("--match and --group are needed, such as --match 'page:{site}:*' --group 'site:{site}'")
	}
	if err := c.addIndexSeries(ctx, name); err != nil {
		return err
	}
	got, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Indexes, error) {
		return cl.CreateIndex(ctx, name, c.match, c.group)
	})
	if err == nil && c.waits {
		got, err = c.waitForIndex(ctx, name, "building", func(x *client.Index) bool { return x != nil && x.State == "serving" })
	}
	if err != nil {
		return err
	}
	if c.json {
		return c.writeJSON()
	}
	return c.printIndexes(got)
}

type indexListVerb struct{ calling }

func (c *indexListVerb) Run(ctx context.Context) error {
	return shown(ctx, &c.calling, listIndexes, c.printIndexes)
}

type indexDeleteVerb struct{ indexing }

func (c *indexDeleteVerb) Flags() []cli.Flag {
	return c.flags(usual, oneAnswer, c.waitFlag())
}

func (c *indexDeleteVerb) Run(ctx context.Context) error {
	name, err := c.oneIndex()
	if err != nil {
		return err
	}
	got, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Indexes, error) { return cl.DeleteIndex(ctx, name) })
	if err == nil && c.waits {
		c.explainDeletion(findIndex(got.Indexes, name))
		got, err = c.waitForIndex(ctx, name, "deleting", func(x *client.Index) bool { return x == nil })
	}
	if err != nil {
		return err
	}
	if c.json {
		return c.writeJSON()
	}
	return c.printIndexes(got)
}

// explainDeletion says from when on anything is removed: before it, other processes may still use the index.
func (c *indexing) explainDeletion(x *client.Index) {
	if x == nil || x.EndedAt == nil {
		return
	}
	from := x.EndedAt.Add(store.SettingsMaxAge)
	if x.Since.After(from) {
		from = x.Since
	}
	fmt.Fprintf(c.stderr, "countmill: %s after the deletion began no process uses the index any more: its groups are removed then\n",
		units.FormatDuration(from.Sub(*x.EndedAt).Round(time.Second)))
}

func (c *call) oneIndex() (string, error) {
	if len(c.args) != 1 {
		return "", cli.Usagef("name one index, got %s", cli.Quoted(c.args))
	}
	return c.args[0], nil
}

// indexEvery is how often a command that waits looks at an index.
const indexEvery = time.Second

// waitForIndex shows the progress of an index until it is as wanted; x is nil if it is not there. A server that
// cannot be reached for a time may come back.
func (c *indexing) waitForIndex(ctx context.Context, name, verb string, done func(x *client.Index) bool) (none client.Indexes, err error) {
	const whole = 1000
	bar := startProgress(c.stderr, verb+" "+name, "shards", whole)
	defer bar.Stop()
	var seen, shards int64
	for {
		all, err := asked(ctx, &c.calling, listIndexes)
		switch refused, ok := errors.AsType[*client.Error](err); {
		case ctx.Err() != nil:
			return none, errStopped(verb)
		case ok && refused.Status < 500:
			return none, err
		}
		x := findIndex(all.Indexes, name)
		switch {
		case err != nil:
			bar.Wait(err.Error())
		case done(x):
			return all, nil
		case x == nil:
			return none, fmt.Errorf("index %q is gone: somebody has deleted it, or the token may not read its groups", name)
		case x.Ranges != nil && *x.Ranges > 0:
			part := int64(whole * *x.RangesDone / *x.Ranges)
			bar.Add(max(part-seen, 0), max(*x.ShardsRead-shards, 0))
			seen, shards = max(seen, part), max(shards, *x.ShardsRead)
		}
		select {
		case <-ctx.Done():
			return none, errStopped(verb)
		case <-time.After(indexEvery):
		}
	}
}

// errStopped is about the command alone: the servers go on.
func errStopped(verb string) error {
	return fmt.Errorf("stopped; the %s goes on, and \"countmill index list\" shows it", map[string]string{"building": "building", "deleting": "deletion"}[verb])
}

func findIndex(all []client.Index, name string) *client.Index {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func listIndexes(ctx context.Context, cl *client.Client) (client.Indexes, error) {
	return cl.Indexes(ctx)
}

func (c *calling) printIndexes(got client.Indexes) error {
	all := got.Indexes
	switch {
	case len(all) > 0:
	case c.Given("token") || c.Given("token-file"): // the server shows no others
		fmt.Fprintln(c.stderr, "no indexes whose groups this token may read")
		return nil
	default:
		fmt.Fprintln(c.stderr, "no indexes")
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INDEX\tSTATE\tMATCH\tGROUP\tCHECKED")
	for i := range all {
		x := &all[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", cli.Plain(x.Name), cli.Plain(indexProgress(x)), cli.Plain(x.Match), cli.Plain(x.Group), checkedAt(x))
	}
	return table.Flush()
}

// checkedAt is empty for an index that is not built yet.
func checkedAt(x *client.Index) string {
	if x.CheckedAt == nil {
		return ""
	}
	return x.CheckedAt.UTC().Format(time.RFC3339Nano)
}

// addIndexSeries adds the rules of --series for an index that is to be created. They come before the index, so
// that a mistake leaves nothing behind that counts without them.
func (c *indexCreateVerb) addIndexSeries(ctx context.Context, name string) error {
	if !c.Given("series") {
		return nil
	}
	keep, err := store.ParseRetention(store.KindSeries, c.series)
	if err != nil {
		return cli.Usagef("--series %q: %s", c.series, err)
	}
	x, err := store.ParseIndex(name, c.match, c.group)
	if err != nil {
		return cli.Usagef("%s", err)
	}
	patterns := []string{x.Prefix() + "*", x.GroupPrefix() + "*"}
	if err := c.checkRules(ctx, patterns, keep.String()); err != nil {
		return err
	}
	for _, pattern := range patterns {
		_, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Rules, error) {
			return cl.AddRule(ctx, client.KindSeries, pattern, keep.String())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRules refuses to change a rule: another index may need its longer times.
func (c *indexCreateVerb) checkRules(ctx context.Context, patterns []string, keep string) error {
	rules, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Rules, error) { return cl.Rules(ctx) })
	if err != nil {
		return err
	}
	for _, pattern := range patterns {
		for _, r := range rules.Series {
			if r.Pattern == pattern && r.Ended == nil && r.Keep != keep {
				return cli.Usagef("--series: the rule for %q keeps %s; give that, or change it with countmill rule add series '%s=%s'", pattern, r.Keep, pattern, keep)
			}
		}
	}
	return nil
}
