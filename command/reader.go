package command

import (
	"context"

	"github.com/countmill/countmill/internal/app"
)

var readerCommand = command{
	name:  "reader",
	short: "run only a reader: serves totals",
	long: `Serves totals over HTTP from a store that other processes write. On one machine use
"countmill up" instead.
`,
	flags: func() string { return app.FlagHelp(app.Reader) },
	run:   func(ctx context.Context, c call) error { return runRoles(ctx, c, app.Reader) },
}
