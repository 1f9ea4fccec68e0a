package command

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/countmill/countmill/internal/app"
)

var upCommand = command{
	name:  "up",
	short: "run everything in one process",
	long: `Runs publisher, aggregator and reader in one process and serves HTTP. Without flags
it needs nothing else: counters are kept in ./countmill-data.

  countmill up
  countmill up --listen 127.0.0.1:9000 --data /var/lib/countmill

Ctrl-C or SIGTERM stops it: it takes no more increments, finishes what it accepted,
and ends within --shutdown-timeout. While it starts, and has accepted nothing, it ends
within 2 s. A second signal ends it at once. What was accepted is safe in every case, also
after SIGKILL.

/openapi.json describes what it serves.
`,
	flags: func() string { return app.FlagHelp(app.Up) },
	run:   func(ctx context.Context, c call) error { return runRoles(ctx, c, app.Up) },
}

// runRoles runs roles until ctx ends or one of them fails.
func runRoles(ctx context.Context, c call, roles app.Roles) error {
	cfg, _, err := app.Parse(roles, c.args, c.lookup)
	if err != nil {
		return err
	}
	cfg.Logger = app.NewLogger(cfg, c.stderr)
	if unknown := app.UnknownEnv(c.environ); len(unknown) > 0 {
		cfg.Logger.Warn("variables that no flag has are ignored", "names", strings.Join(unknown, " "))
	}
	if token, _ := c.lookup("COUNTMILL_TOKEN"); token != "" && cfg.Tokens == "" {
		cfg.Logger.Warn("COUNTMILL_TOKEN is ignored here: clients send that token; a server takes the tokens of a file, COUNTMILL_TOKENS or --tokens")
	}
	a, err := app.Start(ctx, cfg)
	if errors.Is(err, app.ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "countmill %s listens on http://%s%s\n", roles, a.Addr(), a.Kept())
	defer runtime.KeepAlive(spareHeap(c.lookup))
	return a.Run(ctx)
}
