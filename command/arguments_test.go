package command

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
)

func TestSplitArgs(t *testing.T) {
	t.Parallel()
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
	} {
		set := pflag.NewFlagSet("x", pflag.ContinueOnError)
		newParser("incr", 0).bind(set)
		flags, rest, err := splitArgs(set, strings.Fields(test.args))
		if err != nil || strings.Join(flags, " ") != test.flags || strings.Join(rest, " ") != test.rest {
			t.Errorf("%q: got flags %q, rest %q, error %v; want %q, %q", test.args, flags, rest, err, test.flags, test.rest)
		}
	}
}

// A flag at the end, before -- or before another flag has no value, in every command and for every flag that
// takes one.
func TestFlagsNeedTheirValues(t *testing.T) {
	t.Parallel()
	tried, root := 0, newRoot(call{})
	walk(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" || f.Name == "help" {
				return
			}
			tried++
			flag := "--" + f.Name
			for _, after := range [][]string{{flag}, {"a", flag}, {"a", flag, "--"}, {"a", flag, "--", "b"}, {"a", flag, flag}, {"a", flag, flag + "=1"}, {"a", flag, "--help"}} {
				args := append(strings.Fields(path(cmd)), after...)
				got, _, err := rewrite(root, args) // which runs nothing, should it be wrong
				if !errors.Is(err, app.ErrUsage) || !strings.HasPrefix(err.Error(), "flag needs a value: "+flag) {
					t.Errorf("%q: got %q, %v; want a usage error with %q", args, got, err, "flag needs a value: "+flag)
				}
			}
		})
	})
	if tried < 300 {
		t.Errorf("tried %d flags, want all that take a value", tried)
	}
}

// The value that nobody wrote is no file and no time zone either.
func TestFlagsWithoutValuesSayWhichFlagIsNext(t *testing.T) {
	t.Parallel()
	cli(t, nil, "token", "new", "a", "--scope", "read", "--prefix", "--file", "F").wantError(t, 2, "flag needs a value: --prefix; --file is the next flag (write --prefix=--file if it is the value)")
	cli(t, nil, "top", "sites", "-n").wantError(t, 2, "flag needs a value: -n")
	_, err := Settings("up", []string{"--listen"}, lookupIn(nil))
	if err == nil || err.Error() != "flag needs a value: --listen" {
		t.Errorf("Settings: got %v", err)
	}
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	newParser("incr", 0).bind(set)
	if flags, _, err := splitArgs(set, []string{"a", "--id=--key", "--key", "--other"}); err != nil || strings.Join(flags, " ") != "--id=--key --key --other" {
		t.Errorf("values that begin with --: got %q, %v", flags, err)
	}
}

// Flags may be written before the words of a command, between them and after them.
func TestFlagsBeforeTheCommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, path, rest string }{
		{"--json index list", "index list", "--json --"},
		{"index --json list", "index list", "--json --"},
		{"--server x index --json list", "index list", "--server x --json --"},
		{"-n 1 top sites", "top", "-n 1 -- sites"},
		{"--n=1 top sites", "top", "--n=1 -- sites"},
		{"--json get index list", "get", "--json -- index list"},
		{"journal --id check billing:1", "journal", "--id check -- billing:1"},
		{"--id list dead list", "dead list", "--id -- list"},
		{"--wait 5s get a --after r", "get", "--wait 5s --after r -- a"},
		{"--wait index create sites", "index create", "--wait -- sites"},
		{"index --wait create sites", "index create", "--wait -- sites"},
		{"--series import f.csv", "import", "--series -- f.csv"},
		{"incr index -3", "incr", "-- index -3"},
		{"--colour get a", "get", "--colour -- a"},
		{"--version", "version", "--"},
	} {
		got, cmd, err := rewrite(newRoot(call{}), strings.Fields(test.args))
		if err != nil || path(cmd) != test.path || strings.Join(got, " ") != test.path+" "+test.rest {
			t.Errorf("%q: got %q of %q, %v; want %s %s", test.args, got, path(cmd), err, test.path, test.rest)
		}
	}
	f := newFakeServer(t, answer(200, noIndexes))
	if got := cli(t, nil, "--json", "--server", f.URL, "index", "list"); got != (result{0, noIndexes, ""}) {
		t.Errorf("--json index list: got %+v", got)
	}
	cli(t, nil, "--json", "watchh", "list").wantError(t, 2, `unknown command "watchh"; did you mean watch? (see countmill help)`)
	cli(t, nil, "--json").wantError(t, 2, "no command is named: countmill COMMAND [ARGUMENTS] [FLAGS]")
	cli(t, nil, "--colour", "get", "a").wantError(t, 2, "unknown flag: --colour (see countmill help get)")
	if got := cli(t, nil, "--help", "get"); got.code != 0 || !strings.HasPrefix(got.out, "Usage: countmill get") {
		t.Errorf("--help get: got %+v", got)
	}
	for _, flag := range []string{"--json", "--server=http://127.0.0.1:8080"} {
		if got := cli(t, nil, flag, "help", "get"); got.code != 0 || !strings.HasPrefix(got.out, "Usage: countmill get") {
			t.Errorf("%s help get: got %+v", flag, got)
		}
	}
	if got := cli(t, nil, "--json", "--help"); got.code != 0 || !strings.HasPrefix(got.out, "countmill counts") {
		t.Errorf("--json --help: got %+v", got)
	}
}
