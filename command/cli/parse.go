package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// From is the origin of a setting.
type From string

// The places, in the order in which they win.
const (
	FromFlag    From = "flag"
	FromEnv     From = "env"
	FromDefault From = "default"
)

// errArguments is about an argument of a command that takes none.
func errArguments(extra string) error {
	return Usagef("the command takes no arguments, got %q", extra)
}

// A Parsed has the flags and variables of one command.
type Parsed struct {
	Path  string
	begin string // of variables
	flags []Flag
	set   *pflag.FlagSet
	wrong []string
	from  map[string]From // absent for a default
}

// Parse reads the flags and variables of a command, which takes no arguments, into a verb.
func (p *Program) Parse(cmd Command, v Verb, args []string, lookup func(string) (string, bool)) (*Parsed, error) {
	of := p.newParsed(cmd.Path, v, pflag.NewFlagSet(cmd.Path, pflag.ContinueOnError))
	if err := of.set.Parse(args); err != nil {
		return nil, p.flagError(err, of.set)
	}
	if extra := of.set.Args(); len(extra) > 0 {
		return nil, errArguments(extra[0])
	}
	return of, of.finish(lookup)
}

// newParsed defines the flags of v in set.
func (p *Program) newParsed(path string, v Verb, set *pflag.FlagSet) *Parsed {
	of := &Parsed{Path: path, begin: p.Env, flags: v.Flags(), set: set, from: make(map[string]From)}
	for _, f := range of.flags {
		set.VarP(notedValue{f.Value, f.Name, &of.wrong}, f.Name, f.letter(), f.Help)
		if f.isSwitch() {
			set.Lookup(f.Name).NoOptDefVal = "true"
		}
	}
	return of
}

// finish reads variables if no flag was given: a flag wins over its variable, that over the
// default, and an empty variable is none. The error matches ErrUsage and names all flags and
// variables that are wrong.
func (p *Parsed) finish(lookup func(string) (string, bool)) error {
	p.set.Visit(func(f *pflag.Flag) { p.from[f.Name] = FromFlag })
	for _, f := range p.flags {
		if !f.env || p.from[f.Name] == FromFlag || p.from[p.other(f.Name)] == FromFlag {
			continue
		}
		if text, ok := lookup(f.variable(p.begin)); ok && text != "" {
			p.from[f.Name] = FromEnv
			p.set.Lookup(f.Name).Value.(notedValue).set(f.variable(p.begin), text)
		}
	}
	if p.wrong != nil {
		return Usagef("%s", strings.Join(p.wrong, "; "))
	}
	return p.checkPairs()
}

func (p *Parsed) checkPairs() error {
	for _, f := range p.flags {
		switch {
		case f.other == "" || p.from[f.Name] == "" || p.from[f.other] == "":
		case p.from[f.Name] == FromFlag:
			return Usagef("--%s and --%s: give one of them: %s", f.Name, f.other, f.why)
		default:
			return Usagef("%s and %s: set one of them: %s", variable(p.begin, f.Name), variable(p.begin, f.other), f.why)
		}
	}
	return nil
}

// other is the other flag for the same setting, empty if there is none.
func (p *Parsed) other(name string) string {
	for _, f := range p.flags {
		switch {
		case f.other == "":
		case f.Name == name:
			return f.other
		case f.other == name:
			return f.Name
		}
	}
	return ""
}

// Typed is how the caller named a flag that is in force: as a flag, or by its variable. A given flag of a pair
// also names the other.
func (p *Parsed) Typed(name string) string {
	if p.from[name] == "" && p.from[p.other(name)] != "" {
		name = p.other(name)
	}
	if p.from[name] == FromEnv {
		return variable(p.begin, name)
	}
	return Dashed(name)
}

// Dashed is a flag as the reference writes it. One of a letter has one dash.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// Given reports whether a flag or a variable sets the flag.
func (p *Parsed) Given(name string) bool { return p.from[name] != "" }

// From is where the flag in force comes from.
func (p *Parsed) From(name string) From { return cmp.Or(p.from[name], FromDefault) }

// Has reports whether the command has the flag.
func (p *Parsed) Has(name string) bool { return p.set.Lookup(name) != nil }

// Variable is the name of the variable that sets the flag.
func (p *Parsed) Variable(name string) string { return variable(p.begin, name) }

// flagError makes one line of an error of pflag; nil stays nil.
func (p *Program) flagError(err error, set *pflag.FlagSet) error {
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return Usagef("%s%s", err, p.DidYouMean("--", unknown.GetSpecifiedName(), names))
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return errNoValue("--" + missing.GetSpecifiedName())
	}
	return Usagef("%s", err)
}

// UnknownEnv returns the variables that begin like those of flags and that no flag has, for a warning. It leaves
// out the variables that Kubernetes sets for services of the same name: no flag may be called so.
func (p *Program) UnknownEnv(environ []string) []string {
	known := make(map[string]bool)
	for _, cmd := range p.Commands {
		for _, f := range cmd.New().Flags() {
			known[f.variable(p.Env)] = true
		}
	}
	var unknown []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, p.Env) || known[name] || strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT") {
			continue
		}
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	return unknown
}
