package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var nextCommand = cli.Command{
	Path:  "next",
	Group: "count",
	Args:  "SEQUENCE",
	Short: "print the next value of a sequence",
	Long: `Prints the next value of SEQUENCE: 1, 2, 3 and so on. No value is given twice. A sequence needs
no creation, and has nothing to do with a counter of the same name.

  countmill next user:42
  countmill next user:42 --id comment-7     the same value, however often it is run
  countmill next invoices --count 100       the first and the last of 100 values
`,
	New: func() cli.Verb { return new(nextVerb) },
}

type nextVerb struct {
	calling
	id    string
	count int
}

func (c *nextVerb) Flags() []cli.Flag {
	c.count = 1
	return c.flags(usual, oneAnswer,
		cli.New("id", "ID", cli.Any(&c.id), "Name of this request, 1 to 128 bytes. A repeat with the same ID within the deduplication window prints the same.").Default("random"),
		cli.New("count", "N", cli.Count{To: &c.count, Min: 1, Max: countmill.MaxValues}, "How many values, at most 1000. With it the command prints the first and the last one."),
	)
}

func (c *nextVerb) Run(ctx context.Context) error {
	name, err := c.oneName()
	if err != nil {
		return err
	}
	id, err := c.requestID(c.id)
	if err != nil {
		return err
	}
	request := countmill.NextRequest{Sequence: name, ID: id}
	if c.Given("count") {
		request.Count = c.count
	}
	got, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (countmill.Values, error) { return cl.Next(ctx, request) })
	switch err = withoutKey(err); {
	case errors.Is(err, countmill.ErrOutcomeUnknown):
		return fmt.Errorf("maybe given: %w; repeat it with --id %s", err, id)
	case err != nil:
		return fmt.Errorf("no value: %w", err)
	case c.json:
		return c.writeJSON()
	case c.Given("count"):
		_, err = fmt.Fprintln(c.stdout, got.First, got.Last)
	default:
		_, err = fmt.Fprintln(c.stdout, got.First)
	}
	return err
}
