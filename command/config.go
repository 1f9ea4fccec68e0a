package command

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
)

var configCommand = cli.Command{
	Path:  "config",
	Group: "set",
	Short: "show every setting in force and where it comes from",
	Long: `Shows what "countmill up" would run with, given the same flags and variables: each
setting, its value, and whether it comes from a flag, a variable (env) or the default.
It starts and opens nothing.
`,
	New: func() cli.Verb { return &configVerb{rolesVerb: newRoles(app.Up)} },
}

type configVerb struct {
	*rolesVerb
	json bool
}

func (c *configVerb) Flags() []cli.Flag {
	return append(c.rolesVerb.Flags(), cli.Switch("json", &c.json, "Write one JSON array."))
}

func (c *configVerb) Run(context.Context) error {
	c.cfg.Stores, c.cfg.Buses, c.cfg.Buckets = c.stores, c.buses, c.buckets
	if err := c.cfg.Check(); err != nil {
		return err
	}
	settings := settingsOf(c.Parsed, c.cfg)
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

// A Setting is one flag as it is in force.
type Setting struct {
	Name  string   `json:"name"`
	Env   string   `json:"env"`
	Value string   `json:"value"`
	From  cli.From `json:"from"`
}

// Settings returns the settings of up, publisher, aggregator, reader or index work with these flags and variables.
// It starts and opens nothing. The error names everything wrong. If each flag is right and only their
// combination is wrong, the settings are there too.
func Settings(name string, flags []string, lookup func(string) (string, bool)) ([]Setting, error) {
	p := program()
	at := slices.IndexFunc(p.Commands, func(c cli.Command) bool { return c.Path == name })
	if at >= 0 {
		if v, ok := p.Commands[at].New().(*rolesVerb); ok {
			parsed, err := p.Parse(p.Commands[at], v, flags, lookup)
			if err != nil {
				return nil, err
			}
			return settingsOf(parsed, v.cfg), v.cfg.Check()
		}
	}
	return nil, cli.Usagef("%q runs no role (limit: up, publisher, aggregator, reader, index work)", name)
}

// settingsOf is the flags of roles, with the defaults that the backends decide, and without passwords.
func settingsOf(p *cli.Parsed, cfg app.Config) []Setting {
	cfg = cfg.Resolved()
	cfg.Store, cfg.Bus = backend.Shown(cfg.Store), backend.Shown(cfg.Bus)
	var all []Setting
	for _, f := range roleFlags(&cfg) {
		from := p.From(f.Name)
		switch f.Name {
		case "data": // --store shows what it says
			continue
		case "store":
			if from == cli.FromDefault {
				from = p.From("data")
			}
		}
		all = append(all, Setting{Name: f.Name, Env: p.Variable(f.Name), Value: f.Value.String(), From: from})
	}
	return all
}
