package command

import (
	"context"

	"github.com/countmill/countmill/internal/app"
)

var aggregatorCommand = command{
	name:  "aggregator",
	short: "run only an aggregator: folds batches into the store",
	long: `Takes batches from a bus and folds each exactly once into a store, both of which other
processes reach too. On one machine use "countmill up" instead.
`,
	flags: func() string { return app.FlagHelp(app.Aggregator) },
	run:   func(ctx context.Context, c call) error { return runRoles(ctx, c, app.Aggregator) },
}
