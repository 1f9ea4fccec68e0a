package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
)

var versionCommand = cli.Command{
	Path:  "version",
	Group: "set",
	Short: "say which countmill this is",
	New:   func() cli.Verb { return new(versionVerb) },
}

type versionVerb struct {
	call
	json bool
}

func (c *versionVerb) Flags() []cli.Flag {
	return []cli.Flag{
		cli.Switch("json", &c.json, "Write one JSON object."),
	}
}

func (c *versionVerb) Run(context.Context) error {
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
