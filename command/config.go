package command

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/countmill/countmill/internal/app"
)

var configCommand = command{
	path:  "config",
	group: "set",
	roles: app.Up,
	short: "show every setting in force and where it comes from",
	long: `Shows what "countmill up" would run with, given the same flags and variables: each
setting, its value, and whether it comes from a flag, a variable (env) or the default.
It starts and opens nothing.
`,
	run: runConfig,
}

func runConfig(_ context.Context, c call) error {
	if err := c.roles.Check(); err != nil {
		return err
	}
	settings := c.settings()
	if c.json {
		return writeJSON(c.stdout, settings)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM\tVARIABLE")
	for _, s := range settings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Value, s.From, s.Env)
	}
	return w.Flush()
}
