package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/countmill/countmill/internal/app"
)

var readyCommand = command{
	name:  "ready",
	short: "say whether a countmill can do its work",
	long: `Asks a running countmill, of whatever role, for /readyz. Exit code 0: it is ready, or
does without its cache (degraded). Exit code 1: it is not, and the error says why. For
health checks of containers, which have no curl.
`,
	flags: func() string { return verbHelp },
	run:   runReady,
}

func runReady(ctx context.Context, c call) error {
	v := newVerbFlags("ready", defaultTimeout)
	rest, err := v.parse(c)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return app.Usagef("ready takes no arguments, got %q", rest[0])
	}
	cl, err := v.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cl.base+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := cl.do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err != nil {
		return cl.explain(err)
	}
	return printReady(c, answer, v.json)
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
