package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A toy verb has the flags of all of them, and prints what it got.
type toy struct {
	Input
	flags []Flag
}

func (v *toy) Flags() []Flag  { return v.flags }
func (v *toy) Begin(in Input) { v.Input = in }
func (v *toy) Run(context.Context) error {
	_, err := fmt.Fprintln(v.Host.(io.Writer), v.Path, v.Args)
	return err
}

// toys is a program whose commands have flags, each as NAME for a switch or NAME=ARG.
func toys() *Program {
	p := &Program{Name: "toy", Env: "TOY_", HelpGroup: "all", Groups: []Group{{"all", "All"}}, Words: [][]string{{"get", "read"}}, Head: "Toys.\n", Foot: "End.\n"}
	for path, flags := range map[string]string{
		"get": "json wait=D after=R", "index list": "json server=URL", "index create": "wait", "top": "n=N json", "journal": "id=ID",
		"dead list": "limit=N json", "import": "series", "incr": "id=ID key=KEY", "version": "json",
	} {
		if family, _, two := strings.Cut(path, " "); two && !strings.Contains(fmt.Sprint(p.Families), "{"+family+" ") {
			p.Families = append(p.Families, Command{Path: family, Group: "all", Args: "VERB", Short: "say " + family})
		}
		p.Commands = append(p.Commands, Command{Path: path, Group: "all", Args: "[NAME...]", Short: "do " + path, New: func() Verb {
			v := new(toy)
			for text := range strings.FieldsSeq(flags) {
				name, arg, takes := strings.Cut(text, "=")
				if takes {
					v.flags = append(v.flags, New(name, arg, Any(new(string)), "Sets "+name+"."))
				} else {
					v.flags = append(v.flags, Switch(name, new(bool), "Turns "+name+" on."))
				}
			}
			return v
		}})
	}
	return p
}

// execute runs a program without variables.
func execute(t *testing.T, p *Program, args ...string) (out, path string, err error) {
	t.Helper()
	var b strings.Builder
	path, err = p.Execute(t.Context(), Process{Args: args, Lookup: func(string) (string, bool) { return "", false }, Stdout: &b, Stderr: &b, Host: &b})
	return b.String(), path, err
}

func setOf(p *Program, path string) *pflag.FlagSet {
	set := pflag.NewFlagSet(path, pflag.ContinueOnError)
	for _, cmd := range p.Commands {
		if cmd.Path == path {
			p.newParsed(path, cmd.New(), set)
		}
	}
	return set
}

func TestSplitArgs(t *testing.T) {
	t.Parallel()
	set := setOf(toys(), "incr")
	for _, test := range []struct{ args, flags, rest string }{
		{"a -3", "", "a -3"},
		{"a -3 --json", "--json", "a -3"},
		{"--json a -3", "--json", "a -3"},
		{"--id -3 a", "--id -3", "a"},
		{"a --id=-3 -4", "--id=-3", "a -4"},
		{"-- -a -3", "", "-a -3"},
		{"a -- --json", "", "a --json"},
		{"a - ", "", "a -"},
		{"a -x", "-x", "a"},
		{"a --id=--key --key --other", "--id=--key --key --other", "a"},
	} {
		flags, rest, err := splitArgs(set, strings.Fields(test.args))
		if err != nil || strings.Join(flags, " ") != test.flags || strings.Join(rest, " ") != test.rest {
			t.Errorf("%q: got flags %q, rest %q, error %v; want %q, %q", test.args, flags, rest, err, test.flags, test.rest)
		}
	}
}

// A flag at the end, before -- or before another flag has no value. The value that nobody wrote is no file either.
func TestFlagsNeedTheirValues(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--id", "a --id", "a --id --", "a --id -- b", "a --id --id", "a --id --id=1", "a --id --key K", "a --id --help"} {
		if _, _, err := execute(t, toys(), append([]string{"incr"}, strings.Fields(args)...)...); !errors.Is(err, ErrUsage) || !strings.HasPrefix(err.Error(), "flag needs a value: --id") {
			t.Errorf("%q: got %v, want a usage error", args, err)
		}
	}
	if _, _, err := execute(t, toys(), "top", "a", "-n"); err == nil || err.Error() != "flag needs a value: -n" {
		t.Errorf("a letter: got %v", err)
	}
	if _, _, err := execute(t, toys(), "incr", "--id", "--key", "K"); err == nil || err.Error() != "flag needs a value: --id; --key is the next flag (write --id=--key if it is the value)" {
		t.Errorf("the next flag: got %v", err)
	}
}

// A command is one word or two. Its flags and arguments follow in any order.
func TestWordsOfCommands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, path, rest string }{
		{"index list --json", "index list", "--json --"},
		{"top sites -n 1", "top", "-n 1 -- sites"},
		{"journal --id check billing:1", "journal", "--id check -- billing:1"},
		{"get --json index list", "get", "--json -- index list"},
		{"incr index -3", "incr", "-- index -3"},
		{"get --colour a", "get", "--colour -- a"},
		{"--version", "version", "--"},
	} {
		p := toys()
		got, cmd, err := p.rewrite((&running{Program: p}).root(), strings.Fields(test.args))
		if err != nil || p.path(cmd) != test.path || strings.Join(got, " ") != test.path+" "+test.rest {
			t.Errorf("%q: got %q of %q, %v; want %s %s", test.args, got, p.path(cmd), err, test.path, test.rest)
		}
	}
	for args, want := range map[string]string{
		"gett a":         `unknown command "gett"; did you mean get?`,
		"read a":         `unknown command "read"; did you mean get?`,
		"frobnicate":     `unknown command "frobnicate" (try one of: `,
		"dead lst":       `unknown "lst"; did you mean list?`,
		"dead":           "say what to do: list",
		"--json get a":   "name the command first: toy COMMAND [ARGUMENTS] [FLAGS]",
		"get --afte=1 a": "unknown flag: --afte; did you mean --after?",
		"incr -3":        `"-3" is given where NAME is expected`,
	} {
		if _, _, err := execute(t, toys(), strings.Fields(args)...); !errors.Is(err, ErrUsage) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
	for _, args := range []string{"get --help", "help get"} {
		if out, _, err := execute(t, toys(), strings.Fields(args)...); err != nil || !strings.HasPrefix(out, "Usage: toy get [NAME...] [FLAGS]\n\nDo get.\n") {
			t.Errorf("%s: got %q, %v", args, out, err)
		}
	}
}
