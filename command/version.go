package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/countmill/countmill/internal/app"
)

var versionCommand = command{
	name:  "version",
	short: "say which countmill this is",
	flags: func() string { return "  --json\n      Write one JSON object.\n" },
	run:   runVersion,
}

func runVersion(_ context.Context, c call) error {
	v := app.BuildVersion()
	switch {
	case len(c.args) == 0:
		fmt.Fprintf(c.stdout, "countmill %s (revision %s, %s)\n", v.Version, v.Revision, v.Go)
		return nil
	case len(c.args) == 1 && c.args[0] == "--json":
		return writeJSON(c.stdout, v)
	case c.args[0] == "--help" || c.args[0] == "-h":
		return app.ErrHelp
	}
	return app.Usagef("version takes no argument but --json, got %q", c.args[0])
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
