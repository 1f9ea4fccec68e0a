package command

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var readyCommand = cli.Command{
	Path:  "ready",
	Group: "look",
	Short: "say whether a countmill can do its work",
	Long: `Asks a running countmill, of whatever role, for /readyz. Exit code 0: it is ready, or
something is missing that it can do without (degraded). Exit code 1: it is not, and the
error says why. For health checks of containers, which have no curl.
`,
	New: func() cli.Verb { return new(readyVerb) },
}

type readyVerb struct{ calling }

func (c *readyVerb) Flags() []cli.Flag { return c.flags(usual, oneAnswer) }

func (c *readyVerb) Run(ctx context.Context) error {
	answer, err := c.ask(ctx, client.Request{Path: "/readyz"})
	if err != nil {
		return err
	}
	var got struct{ Status, Reason string }
	if err := json.Unmarshal(answer, &got); err != nil || got.Status == "" {
		return fmt.Errorf("the server answered with something else than a status; is that a countmill?")
	}
	switch {
	case c.json:
		_, err := c.stdout.Write(answer)
		return err
	case got.Reason != "":
		fmt.Fprintf(c.stdout, "%s: %s\n", got.Status, got.Reason)
	default:
		fmt.Fprintln(c.stdout, got.Status)
	}
	return nil
}
