package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newHelp is help [COMMAND].
func (r *running) newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND]", Short: "say how a command is used", GroupID: r.HelpGroup, RunE: func(_ *cobra.Command, args []string) error {
		cmd := root
		for _, word := range args {
			sub := find(cmd, word)
			if sub == nil {
				return Usagef("unknown command %q%s", strings.Join(args, " "), r.orOneOf(word, r.subcommands(cmd)))
			}
			cmd = sub
		}
		_, err := io.WriteString(r.Stdout, r.help(cmd))
		return err
	}}
}

// help is the text for a person about a command.
func (p *Program) help(cmd *cobra.Command) string {
	path := p.path(cmd)
	if path == "" || path == "help" {
		return p.overview(cmd.Root())
	}
	flags := p.flagsOf(path)
	hint := ""
	if len(flags) > 0 {
		hint = " [FLAGS]"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s %s%s\n\n", p.Name, p.usage(cmd), hint)
	b.WriteString(cmp.Or(cmd.Long, strings.ToUpper(cmd.Short[:1])+cmd.Short[1:]+".\n"))
	if cmd.HasSubCommands() {
		b.WriteString("\n")
		p.writeCommands(&b, cmd.Commands())
		fmt.Fprintf(&b, "\n\"%s help %s %s\" says more.\n", p.Name, path, p.subcommands(cmd)[0])
	}
	if len(flags) > 0 {
		b.WriteString("\nFlags, with their defaults and variables:\n\n" + p.flagHelp(flags))
	}
	return b.String()
}

// flagsOf is the flags of a command, none for a family.
func (p *Program) flagsOf(path string) []Flag {
	for _, cmd := range p.Commands {
		if cmd.Path == path {
			return cmd.New().Flags()
		}
	}
	return nil
}

// path is the words of a command after the name of the program.
func (p *Program) path(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), p.Name))
}

// usage is a command and its arguments.
func (p *Program) usage(cmd *cobra.Command) string {
	_, args, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSpace(p.path(cmd) + " " + args)
}

// Overview is all commands, by their groups.
func (p *Program) Overview() string { return p.overview((&running{Program: p}).root()) }

func (p *Program) overview(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(p.Head)
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n%s:\n\n", group.Title)
		var of []*cobra.Command
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				of = append(of, cmd)
			}
		}
		p.writeCommands(&b, of)
	}
	b.WriteString(p.Foot)
	return b.String()
}

// column is the start of the second column of a list of commands.
const column = 38

// writeCommands writes a line for each command, and two if its arguments leave no room for the second column.
func (p *Program) writeCommands(b *strings.Builder, all []*cobra.Command) {
	for _, cmd := range p.inOrder(all) {
		line := fmt.Sprintf("  %-*s", column-2, p.usage(cmd))
		if !strings.HasSuffix(line, " ") {
			line += "\n" + strings.Repeat(" ", column)
		}
		b.WriteString(line + cmd.Short + "\n")
	}
}

// flagHelp is flags with their defaults and variables.
func (p *Program) flagHelp(flags []Flag) string {
	var b strings.Builder
	for _, f := range flags {
		fmt.Fprintf(&b, "  %s\n", strings.TrimSpace("--"+f.Name+" "+f.Arg))
		text := f.Help
		if def := f.shownDefault(); def != "" {
			text += " Default " + def + "."
		}
		if f.env {
			text += " [" + f.variable(p.Env) + "]"
		}
		wrap(&b, text)
	}
	return b.String()
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

// Completion is the command that prints completion scripts.
func (p *Program) Completion(group string) Command {
	return Command{
		Path: "completion", Group: group,
		Args:  "bash|zsh|fish",
		Short: "print a completion script for a shell",
		Long: fmt.Sprintf(`Prints a script that completes commands and flags in bash, zsh or fish:

  source <(%[1]s completion bash)       in this shell
  %[1]s completion bash > /etc/bash_completion.d/%[1]s
  %[1]s completion zsh > "${fpath[1]}/_%[1]s"
  %[1]s completion fish > ~/.config/fish/completions/%[1]s.fish
`, p.Name),
		New: func() Verb { return &completion{} },
	}
}

type completion struct{ Input }

func (c *completion) Flags() []Flag  { return nil }
func (c *completion) Begin(in Input) { c.Input = in }

func (c *completion) Run(context.Context) error {
	root := c.program.root()
	if len(c.Args) == 1 {
		switch c.Args[0] {
		case "bash":
			return root.GenBashCompletionV2(c.program.Stdout, true)
		case "zsh":
			return root.GenZshCompletion(c.program.Stdout)
		case "fish":
			return root.GenFishCompletion(c.program.Stdout, true)
		}
	}
	return Usagef("name one shell (limit: bash, zsh, fish), got %s", Quoted(c.Args))
}
