package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countmill/countmill/internal/app"
)

// newHelp is `countmill help [COMMAND]`.
func newHelp(root *cobra.Command, c call) *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND]", Short: "say how a command is used", GroupID: "set", RunE: func(_ *cobra.Command, args []string) error {
		cmd := root
		for _, word := range args {
			sub := find(cmd, word)
			if sub == nil {
				return app.Usagef("unknown command %q%s", strings.Join(args, " "), orOneOf(word, subcommands(cmd)))
			}
			cmd = sub
		}
		_, err := fmt.Fprint(c.stdout, help(cmd))
		return err
	}}
}

// help is the text for a person about a command.
func help(cmd *cobra.Command) string {
	path := path(cmd)
	if path == "" || path == "help" {
		return overview(cmd.Root())
	}
	flags := flagsOf(path)
	hint := ""
	if len(flags) > 0 {
		hint = " [FLAGS]"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: countmill %s%s\n\n", usage(cmd), hint)
	b.WriteString(cmp.Or(cmd.Long, strings.ToUpper(cmd.Short[:1])+cmd.Short[1:]+".\n"))
	if cmd.HasSubCommands() {
		b.WriteString("\n")
		writeCommands(&b, cmd.Commands())
		fmt.Fprintf(&b, "\n\"countmill help %s %s\" says more.\n", path, subcommands(cmd)[0])
	}
	if len(flags) > 0 {
		b.WriteString("\nFlags, with their defaults and variables:\n\n" + flagHelp(flags))
	}
	return b.String()
}

// path is the words of a command after countmill.
func path(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), "countmill"))
}

// usage is a command and its arguments.
func usage(cmd *cobra.Command) string {
	_, args, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSpace(path(cmd) + " " + args)
}

func overview(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("countmill counts: increments in, exact totals out, every increment once.\n\n")
	b.WriteString("Usage: countmill COMMAND [ARGUMENTS] [FLAGS]\n")
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n%s:\n\n", group.Title)
		var of []*cobra.Command
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				of = append(of, cmd)
			}
		}
		writeCommands(&b, of)
	}
	b.WriteString(`
Begin with:

  countmill up                    in one terminal
  countmill incr page:/home       in another one
  countmill get page:/home

Flags of up, publisher, aggregator and reader can also be set by variables:
--max-staleness by COUNTMILL_MAX_STALENESS. A flag wins over its variable. "countmill
config" shows the settings in force. "countmill help COMMAND" says more about a command.

Exit codes: 0 it worked, 1 it did not, 2 the command line or the environment is wrong,
3 verify or recount found something wrong or nothing to check, or status or doctor could not
reach the server.
`)
	return b.String()
}

// column is the start of the second column of a list of commands.
const column = 38

// writeCommands writes a line for each command, and two if its arguments leave no room for the second column.
func writeCommands(b *strings.Builder, all []*cobra.Command) {
	for _, cmd := range inOrder(all) {
		line := fmt.Sprintf("  %-*s", column-2, usage(cmd))
		if !strings.HasSuffix(line, " ") {
			line += "\n" + strings.Repeat(" ", column)
		}
		b.WriteString(line + cmd.Short + "\n")
	}
}

// flagHelp is flags with their defaults and variables.
func flagHelp(flags []flag) string {
	var b strings.Builder
	for _, f := range flags {
		fmt.Fprintf(&b, "  %s\n", strings.TrimSpace("--"+f.name+" "+f.arg))
		text := f.help
		if def := f.shownDefault(); def != "" {
			text += " Default " + def + "."
		}
		if f.env {
			text += " [" + f.variable() + "]"
		}
		wrap(&b, text)
	}
	return b.String()
}

// shownDefault is empty for a switch without a variable: it is off.
func (f flag) shownDefault() string {
	value := f.bind(&values{roles: app.Defaults(app.Up)})
	if f.def == "" && value.Type() == "bool" && !f.env {
		return ""
	}
	return cmp.Or(f.def, value.String())
}

// wrap writes text in lines of at most 80 columns, indented by 6.
func wrap(b *strings.Builder, text string) {
	const indent, width = "      ", 80
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}

// completionCommand is a function because it needs all commands.
func completionCommand() command {
	return command{
		path: "completion", group: "set",
		args:  "bash|zsh|fish",
		short: "print a completion script for a shell",
		long: `Prints a script that completes commands and flags in bash, zsh or fish:

  source <(countmill completion bash)       in this shell
  countmill completion bash > /etc/bash_completion.d/countmill
  countmill completion zsh > "${fpath[1]}/_countmill"
  countmill completion fish > ~/.config/fish/completions/countmill.fish
`,
		run: runCompletion,
	}
}

func runCompletion(_ context.Context, c call) error {
	root := newRoot(c)
	if len(c.args) == 1 {
		switch c.args[0] {
		case "bash":
			return root.GenBashCompletionV2(c.stdout, true)
		case "zsh":
			return root.GenZshCompletion(c.stdout)
		case "fish":
			return root.GenFishCompletion(c.stdout, true)
		}
	}
	return app.Usagef("name one shell (limit: bash, zsh, fish), got %s", quoted(c.args))
}
