package command

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
)

// From is the origin of a setting.
type From string

// The places, in the order in which they win.
const (
	FromFlag    From = "flag"
	FromEnv     From = "env"
	FromDefault From = "default"
)

// A Setting is one flag as it is in force.
type Setting struct {
	Name  string `json:"name"`
	Env   string `json:"env"`
	Value string `json:"value"`
	From  From   `json:"from"`
}

// Settings returns the settings of up, publisher, aggregator, reader or index work with these flags and variables.
// It starts and opens nothing. The error names everything wrong. If each flag is right and only their
// combination is wrong, the settings are there too.
func Settings(name string, flags []string, lookup func(string) (string, bool)) ([]Setting, error) {
	roles, ok := map[string]app.Roles{"up": app.Up, "publisher": app.Publisher, "aggregator": app.Aggregator, "reader": app.Reader, "index work": app.Indexer}[name]
	if !ok {
		return nil, app.Usagef("%q runs no role (limit: up, publisher, aggregator, reader, index work)", name)
	}
	p := newParser(name, roles)
	p.bind(pflag.NewFlagSet(name, pflag.ContinueOnError))
	if err := p.set.Parse(flags); err != nil {
		return nil, flagError(err, p.set)
	}
	if extra := p.set.Args(); len(extra) > 0 {
		return nil, errArguments(extra[0])
	}
	if err := p.finish(lookup); err != nil {
		return nil, err
	}
	return p.settings(), p.values.roles.Check()
}

func errArguments(extra string) error {
	return app.Usagef("the command takes no arguments, got %q", extra)
}

// A parser reads the flags and variables of one command.
type parser struct {
	path  string
	flags []flag
	*values
	set   *pflag.FlagSet
	wrong []string
	from  map[string]From // absent for a default
}

// newParser is for a command that runs roles, or none.
func newParser(path string, roles app.Roles) *parser {
	return &parser{path: path, flags: flagsOf(path), values: &values{roles: app.Defaults(roles)}, from: make(map[string]From)}
}

// bind defines the flags in set.
func (p *parser) bind(set *pflag.FlagSet) {
	p.set = set
	for _, f := range p.flags {
		value := f.bind(p.values)
		set.VarP(notedValue{value, f.name, &p.wrong}, f.name, f.letter(), f.help)
		if value.Type() == "bool" {
			set.Lookup(f.name).NoOptDefVal = "true"
		}
	}
}

// finish reads variables if no flag was given: a flag wins over its variable, that over the
// default, and an empty variable is none. The error matches app.ErrUsage and names all flags and
// variables that are wrong.
func (p *parser) finish(lookup func(string) (string, bool)) error {
	p.set.Visit(func(f *pflag.Flag) { p.from[f.Name] = FromFlag })
	for _, f := range p.flags {
		if !f.env || p.from[f.name] == FromFlag || p.from[other(f.name)] == FromFlag {
			continue
		}
		if text, ok := lookup(f.variable()); ok && text != "" {
			p.from[f.name] = FromEnv
			p.set.Lookup(f.name).Value.(notedValue).set(f.variable(), text)
		}
	}
	if p.wrong != nil {
		return app.Usagef("%s", strings.Join(p.wrong, "; "))
	}
	return p.checkPairs()
}

func (p *parser) checkPairs() error {
	for _, pair := range either {
		switch {
		case p.from[pair.a] == "" || p.from[pair.b] == "":
		case p.from[pair.a] == FromFlag:
			return app.Usagef("--%s and --%s: give one of them: %s", pair.a, pair.b, pair.why)
		default:
			return app.Usagef("%s and %s: set one of them: %s", variable(pair.a), variable(pair.b), pair.why)
		}
	}
	return nil
}

// typed is how the caller named a flag that is in force: as a flag, or by its variable. A flag of a pair that was
// given stands for the other.
func (p *parser) typed(name string) string {
	if p.from[name] == "" && p.from[other(name)] != "" {
		name = other(name)
	}
	if p.from[name] == FromEnv {
		return variable(name)
	}
	return dashed(name)
}

// dashed is a flag as the reference writes it. One of a letter has one dash.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// given reports whether a flag or a variable sets the flag.
func (p *parser) given(name string) bool { return p.from[name] != "" }

// settings returns the flags that have variables, with the defaults that the backends decide.
func (p *parser) settings() []Setting {
	inForce := &values{roles: p.values.roles.Resolved()}
	var all []Setting
	for _, f := range p.flags {
		if !f.env || f.name == "data" {
			continue // --store shows what --data says
		}
		where := p.from[f.name]
		if f.name == "store" {
			where = cmp.Or(where, p.from["data"])
		}
		all = append(all, Setting{Name: f.name, Env: f.variable(), Value: f.bind(inForce).String(), From: cmp.Or(where, FromDefault)})
	}
	return all
}

// flagError makes one line of an error of pflag; nil stays nil.
func flagError(err error, set *pflag.FlagSet) error {
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return app.Usagef("%s%s", err, didYouMean("--", unknown.GetSpecifiedName(), names))
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return errNoValue("--" + missing.GetSpecifiedName())
	}
	return app.Usagef("%s", err)
}

// UnknownEnv returns the COUNTMILL_ variables that no flag has, for a warning. It leaves out the
// variables that Kubernetes sets for services.
func UnknownEnv(environ []string) []string {
	known := make(map[string]bool)
	for _, s := range table() {
		for _, f := range s.flags {
			known[f.variable()] = true
		}
	}
	var unknown []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "COUNTMILL_") || known[name] {
			continue
		}
		if strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT") {
			continue
		}
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	return unknown
}
