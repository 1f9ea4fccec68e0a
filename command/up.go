package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/systemd"
)

var upCommand = command{
	path:  "up",
	group: "run",
	roles: app.Up,
	short: "run everything in one process",
	long: `Runs publisher, aggregator and reader in one process and serves HTTP. Without flags
it needs nothing else: counters are kept in ./countmill-data.

  countmill up
  countmill up --listen 127.0.0.1:9000 --data /var/lib/countmill

Ctrl-C or SIGTERM stops it: it takes no more increments, finishes accepted work,
and ends within --shutdown-timeout. While it starts, and has accepted nothing, it ends
within 2 s. A second signal ends it at once. Accepted increments are safe in every case, also
after SIGKILL.

/openapi.json describes the API.

The program countmill-backup, which has all commands, also sends traces: set
OTEL_EXPORTER_OTLP_ENDPOINT to a collector of OpenTelemetry.
`,
	run: runRoles,
}

var publisherCommand = command{
	path:  "publisher",
	group: "run",
	roles: app.Publisher,
	short: "run only a publisher: takes increments, sends batches",
	long: `Takes increments over HTTP, coalesces them and sends them as batches over a bus that
reaches other processes. On one machine use "countmill up" instead.
`,
	run: runRoles,
}

var aggregatorCommand = command{
	path:  "aggregator",
	group: "run",
	roles: app.Aggregator,
	short: "run only an aggregator: folds batches into the store",
	long: `Takes batches from a bus and folds each exactly once into a store. Other processes have to
reach both. On one machine use "countmill up" instead.
`,
	run: runRoles,
}

var readerCommand = command{
	path:  "reader",
	group: "run",
	roles: app.Reader,
	short: "run only a reader: serves totals",
	long: `Serves totals over HTTP from a store that other processes write. On one machine use
"countmill up" instead.
`,
	run: runRoles,
}

// runRoles runs the roles of the command until ctx ends or one of them fails.
func runRoles(ctx context.Context, c call) error {
	cfg := c.roles
	cfg.Logger = app.NewLogger(cfg, c.stderr)
	if unknown := UnknownEnv(c.environ); len(unknown) > 0 {
		cfg.Logger.Warn("variables that no flag has are ignored", "names", strings.Join(unknown, " "))
	}
	if token, _ := c.lookup("COUNTMILL_TOKEN"); token != "" && cfg.Tokens == "" {
		cfg.Logger.Warn("COUNTMILL_TOKEN is ignored here: clients send that token; a server takes the tokens of a file, COUNTMILL_TOKENS or --tokens")
	}
	var err error
	if cfg.Supervisor, err = systemd.FromEnv(c.lookup); err != nil {
		return app.Usagef("%s", err)
	}
	if cfg.Traces, err = c.openTraces(ctx, cfg.Logger); err != nil {
		return app.Usagef("traces: %s", err)
	}
	a, err := app.Start(ctx, cfg)
	if errors.Is(err, app.ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "countmill %s listens on http://%s%s\n", cfg.Roles, a.Addr(), a.Kept())
	defer runtime.KeepAlive(ballast(c.lookup))
	return a.Run(ctx)
}

// openTraces returns nil unless variables ask for traces.
func (c call) openTraces(ctx context.Context, log *slog.Logger) (backend.Traces, error) {
	if c.traces != nil {
		return c.traces(ctx, log)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if value, _ := c.lookup(name); value != "" {
			log.Warn(name + " is ignored: this program sends no traces; countmill-backup, which has all commands, does")
		}
	}
	return nil, nil
}
