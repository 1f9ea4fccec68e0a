package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rewrite puts the words of a command first, then its flags, then its arguments, with -- between them, as a
// negative number may be among the arguments. Flags may be written before the words, too.
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

// takeWords finds the command that args name by one word, or by two, and returns the other arguments. It returns
// root for a call for help, which may have flags before it.
func (p *Program) takeWords(root *cobra.Command, args []string) (cmd *cobra.Command, rest []string, err error) {
	at := p.nextWord(root, args)
	switch {
	case at < len(args):
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		return root, []string{"--help"}, nil
	default:
		return root, nil, Usagef("no command is named: %s COMMAND [ARGUMENTS] [FLAGS]", p.Name)
	}
	if args[at] == "help" { // a command of cobra, without flags
		return root, args[at:], nil
	}
	if cmd = find(root, args[at]); cmd == nil {
		return root, nil, Usagef("unknown command %q%s", args[at], p.orOneOf(args[at], p.subcommands(root)))
	}
	rest = slices.Concat(args[:at], args[at+1:])
	if at = p.nextWord(cmd, rest); at < len(rest) {
		if sub := find(cmd, rest[at]); sub != nil {
			return sub, slices.Concat(rest[:at], rest[at+1:]), nil
		}
	}
	return cmd, rest, nil
}

// nextWord returns the position of the first argument that is neither a flag nor a flag's value; len(args) if there is none
// before --. cmd is the command so far.
func (p *Program) nextWord(cmd *cobra.Command, args []string) int {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--":
			return len(args)
		case !strings.HasPrefix(arg, "-"):
			return i
		case i+1 < len(args) && p.valueFollows(cmd, arg, args[i+1]):
			i++
		}
	}
	return len(args)
}

// valueFollows reports whether next is the value of the flag arg, before its command is known. A few names are
// switches in one command, and take a value in another: next is then the value unless it is a command.
func (p *Program) valueFollows(cmd *cobra.Command, arg, next string) bool {
	name := strings.TrimLeft(arg, "-")
	takes, isSwitch := false, false
	for _, c := range p.Commands {
		for _, f := range c.New().Flags() {
			if f.Name == name {
				takes, isSwitch = takes || !f.isSwitch(), isSwitch || f.isSwitch()
			}
		}
	}
	return takes && !(isSwitch && find(cmd, next) != nil)
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
