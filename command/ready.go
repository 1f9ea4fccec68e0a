package command

import (
	"context"
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

func (c *readyVerb) Run(ctx context.Context) error {
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Status, error) { return cl.Readiness(ctx) }, func(got client.Status) error {
		if got.Reason != "" {
			got.Status += ": " + got.Reason
		}
		_, err := fmt.Fprintln(c.stdout, got.Status)
		return err
	})
}
