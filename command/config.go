package command

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/countmill/countmill/internal/app"
)

var configCommand = command{
	name:  "config",
	short: "show every setting in force and where it comes from",
	long: `Shows what "countmill up" would run with, given the same flags and variables: each
setting, its value, and whether it comes from a flag, a variable (env) or the default.
It starts and opens nothing.
`,
	flags: func() string { return "  --json\n      Write one JSON array.\n" + app.FlagHelp(app.Up) },
	run:   runConfig,
}

func runConfig(_ context.Context, c call) error {
	flags := slices.DeleteFunc(slices.Clone(c.args), func(arg string) bool { return arg == "--json" })
	cfg, settings, err := app.Parse(app.Up, flags, c.lookup)
	if err != nil {
		return err
	}
	if err := cfg.Check(); err != nil {
		return err
	}
	if len(flags) < len(c.args) {
		return writeJSON(c.stdout, settings)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM\tVARIABLE")
	for _, s := range settings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Value, s.From, s.Env)
	}
	return w.Flush()
}
