package command

import (
	"context"
	"fmt"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var verifyCommand = cli.Command{
	Path:  "verify",
	Group: "look",
	Args:  "[PREFIX]",
	Short: "check the stored data: shards, records and groups",
	Long: `Reads all shards of the counters that begin with PREFIX, or of all, and the counters' records,
while counting goes on. It prints a line for each problem:

  orphan      a shard of a counter without a record: no total includes it
  beyond      a shard whose number the record does not cover: no total includes it
  unreadable  a shard with a wrong key, or without a count
  group       a group whose total is not the sum of its counters, all read at one moment

--fix grows records to cover all shards, which adds their counts to the totals. A person has
to fix the rest.

Exit code 3: something is wrong, and was not fixed, or nothing that begins with PREFIX was checked.
`,
	New: func() cli.Verb { return new(verifyVerb) },
}

type verifyVerb struct {
	calling
	fix    bool
	prefix string

	shards, groups, problems, fixed int
}

func (c *verifyVerb) Flags() []cli.Flag {
	return c.flags(serverTimeout, pages, cli.Switch("fix", &c.fix, "Fix problems whose fix is safe."))
}

func (c *verifyVerb) Run(ctx context.Context) error {
	prefix, err := c.onePrefix()
	if err != nil {
		return err
	}
	c.prefix = prefix
	if err := c.run(ctx); err != nil {
		return err
	}
	if left := c.problems - c.fixed; left > 0 {
		return &inconsistent{fmt.Sprintf("%d problems, %d fixed", c.problems, c.fixed)}
	}
	if prefix != "" && c.shards+c.groups == 0 {
		return &inconsistent{fmt.Sprintf("nothing was checked: no shard and no group has a name that begins with %q%s", prefix, withoutStar(prefix))}
	}
	return nil
}

// An inconsistent error means that the check worked, and found something wrong.
type inconsistent struct{ text string }

func (e *inconsistent) Error() string { return e.text }

func (c *verifyVerb) run(ctx context.Context) error {
	bar := startProgress(c.stderr, "checking", "shards", 0)
	err := c.pages(ctx, bar)
	bar.Stop()
	if err == nil {
		fmt.Fprintln(c.stderr, c.seen())
	}
	return err
}

func (c *verifyVerb) pages(ctx context.Context, bar *progress) error {
	for token, again := "", true; again; again = token != "" {
		page, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Verified, error) {
			if c.fix {
				return cl.Fix(ctx, c.prefix, token)
			}
			return cl.Verify(ctx, c.prefix, token)
		})
		if err != nil {
			return err
		}
		if err := c.print(&page); err != nil {
			return err
		}
		bar.Add(0, int64(page.Shards))
		token = page.Next
	}
	return nil
}

func (c *verifyVerb) print(page *client.Verified) error {
	c.shards, c.groups = c.shards+page.Shards, c.groups+page.Groups
	c.problems += len(page.Problems)
	for _, p := range page.Problems {
		if p.Fixed {
			c.fixed++
		}
		if c.json {
			continue
		}
		line := cli.Plain(p.Kind) + "\t" + cli.Plain(p.Counter)
		if p.Shard != nil {
			line += fmt.Sprintf("\tshard %d", *p.Shard)
		}
		line += "\t" + cli.Plain(p.Detail)
		if p.Fixed {
			line += "\tfixed"
		}
		if _, err := fmt.Fprintln(c.stdout, line); err != nil {
			return err
		}
	}
	return c.writeJSON()
}

func (c *verifyVerb) seen() string {
	text := counted(c.shards, "shard")
	if c.groups > 0 {
		text += " and " + counted(c.groups, "group")
	}
	return text + " checked"
}
