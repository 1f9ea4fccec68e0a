package command

import (
	"context"

	"github.com/countmill/countmill/internal/app"
)

var publisherCommand = command{
	name:  "publisher",
	short: "run only a publisher: takes increments, sends batches",
	long: `Takes increments over HTTP, coalesces them and sends them as batches over a bus that
reaches other processes. On one machine use "countmill up" instead.
`,
	flags: func() string { return app.FlagHelp(app.Publisher) },
	run:   func(ctx context.Context, c call) error { return runRoles(ctx, c, app.Publisher) },
}
