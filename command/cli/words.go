package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rewrite puts the flags behind the words of a command, and then its arguments, with -- between them, as a
// negative number may be among the arguments.
func (p *Program) rewrite(root *cobra.Command, args []string) ([]string, *cobra.Command, error) {
	if args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
	}
	if strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) || args[0] == "help" {
		return args, root, nil
	}
	cmd, rest, err := p.takeWords(root, args)
	if err != nil || cmd == root {
		return rest, cmd, err
	}
	flags, rest, err := splitArgs(cmd.Flags(), rest)
	if err != nil {
		return nil, cmd, err
	}
	all := append(strings.Fields(p.path(cmd)), flags...)
	return append(append(all, "--"), rest...), cmd, nil
}

// takeWords finds the command that args begin with, by one word or by two, and returns the other arguments.
func (p *Program) takeWords(root *cobra.Command, args []string) (cmd *cobra.Command, rest []string, err error) {
	switch {
	case args[0] == "--help" || args[0] == "-h":
		return root, args[:1], nil
	case strings.HasPrefix(args[0], "-"):
		return root, nil, Usagef("name the command first: %s COMMAND [ARGUMENTS] [FLAGS]", p.Name)
	}
	if cmd = find(root, args[0]); cmd == nil {
		return root, nil, Usagef("unknown command %q%s", args[0], p.orOneOf(args[0], p.subcommands(root)))
	}
	rest = args[1:]
	if len(rest) > 0 {
		if sub := find(cmd, rest[0]); sub != nil {
			return sub, rest[1:], nil
		}
	}
	return cmd, rest, nil
}

func find(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

var negative = regexp.MustCompile(`^-[0-9]`)

// splitArgs separates flags from other arguments, in any order. A negative number is not a flag, so
// that `incr NAME -3` works, and after -- nothing is a flag. Before -- a negative number is not a name
// either: in `incr -3` the name is missing.
//
// A flag without its value is an error here: rewrite adds a --, which would be taken for the value.
func splitArgs(set *pflag.FlagSet, args []string) (flags, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return flags, append(rest, args[i+1:]...), nil
		case negative.MatchString(arg) && len(rest) == 0:
			return nil, nil, Usagef("%q is given where NAME is expected; put -- before a name that begins with -", arg)
		case !strings.HasPrefix(arg, "-") || arg == "-" || negative.MatchString(arg):
			rest = append(rest, arg)
		case !takesValue(set, arg):
			flags = append(flags, arg)
		case i+1 == len(args) || args[i+1] == "--":
			return nil, nil, errNoValue(arg)
		case isFlag(set, args[i+1]):
			return nil, nil, Usagef("flag needs a value: %s; %s is the next flag (write %s=%s if it is the value)", arg, args[i+1], arg, args[i+1])
		default:
			flags = append(flags, arg, args[i+1])
			i++
		}
	}
	return flags, rest, nil
}

func errNoValue(flag string) error { return Usagef("flag needs a value: %s", flag) }

// takesValue reports whether the next argument is the value of this flag.
func takesValue(set *pflag.FlagSet, arg string) bool {
	f := set.Lookup(strings.TrimLeft(arg, "-"))
	return f != nil && f.NoOptDefVal == ""
}

// isFlag reports whether arg is a flag of the command, perhaps with its value.
func isFlag(set *pflag.FlagSet, arg string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return strings.HasPrefix(arg, "--") && (name == "help" || set.Lookup(name) != nil)
}
