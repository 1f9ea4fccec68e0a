package command

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/countmill/countmill/client"
)

var readyCommand = command{
	path:  "ready",
	group: "look",
	short: "say whether a countmill can do its work",
	long: `Asks a running countmill, of whatever role, for /readyz. Exit code 0: it is ready, or
something is missing that it can do without (degraded). Exit code 1: it is not, and the
error says why. For health checks of containers, which have no curl.
`,
	run: runReady,
}

func runReady(ctx context.Context, c call) error {
	answer, err := c.ask(ctx, client.Request{Path: "/readyz"})
	if err != nil {
		return err
	}
	return printReady(c, answer, c.json)
}

func printReady(c call, answer []byte, asJSON bool) error {
	var got struct{ Status, Reason string }
	if err := json.Unmarshal(answer, &got); err != nil || got.Status == "" {
		return fmt.Errorf("the server answered with something else than a status; is that a countmill?")
	}
	switch {
	case asJSON:
		_, err := c.stdout.Write(answer)
		return err
	case got.Reason != "":
		fmt.Fprintf(c.stdout, "%s: %s\n", got.Status, got.Reason)
	default:
		fmt.Fprintln(c.stdout, got.Status)
	}
	return nil
}
