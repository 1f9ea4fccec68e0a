package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/countmill/countmill/internal/app"
)

var versionCommand = command{
	path:  "version",
	group: "set",
	short: "say which countmill this is",
	run:   runVersion,
}

func runVersion(_ context.Context, c call) error {
	v := app.BuildVersion()
	if c.json {
		return writeJSON(c.stdout, v)
	}
	_, err := fmt.Fprintf(c.stdout, "countmill %s (revision %s, %s)\n", v.Version, v.Revision, v.Go)
	return err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
