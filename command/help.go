package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/countmill/countmill/internal/app"
)

// A command is one word after countmill.
type command struct {
	name  string
	args  string // how the arguments are written
	short string // half a line
	long  string // what a person needs to know; ends with a newline
	flags func() string
	run   func(ctx context.Context, c call) error
}

// commands is every command, in the order of the help.
func commands() []command {
	return []command{
		upCommand, publisherCommand, aggregatorCommand, readerCommand,
		incrCommand, getCommand, lsCommand, watchCommand, growCommand, resetCommand, deleteCommand,
		readyCommand, backupCommand, shardsCommand, verifyCommand, deadCommand, planCommand,
		importCommand, exportCommand, adoptCommand,
		tokenCommand, configCommand, versionCommand,
		{name: "help", args: "[COMMAND]", short: "say how a command is used", run: runHelp},
	}
}

func find(name string) (command, bool) {
	for _, cmd := range commands() {
		if cmd.name == name {
			return cmd, true
		}
	}
	return command{}, false
}

func names() string {
	var all []string
	for _, cmd := range commands() {
		all = append(all, cmd.name)
	}
	return strings.Join(all, ", ")
}

func runHelp(_ context.Context, c call) error {
	if len(c.args) == 0 || strings.HasPrefix(c.args[0], "-") {
		fmt.Fprint(c.stdout, overview())
		return nil
	}
	cmd, ok := find(c.args[0])
	if !ok {
		return app.Usagef("unknown command %q (try one of: %s)", c.args[0], names())
	}
	fmt.Fprint(c.stdout, cmd.help())
	return nil
}

func overview() string {
	var b strings.Builder
	b.WriteString("countmill counts: increments in, exact totals out, every increment once.\n\n")
	b.WriteString("Usage: countmill COMMAND [ARGUMENTS] [FLAGS]\n\n")
	width := 0
	for _, cmd := range commands() {
		width = max(width, len(cmd.usage()))
	}
	for _, cmd := range commands() {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, cmd.usage(), cmd.short)
	}
	b.WriteString(`
Begin with:

  countmill up                    in one terminal
  countmill incr page:/home       in another one
  countmill get page:/home

Every flag of up, publisher, aggregator and reader has a variable: --max-staleness
is COUNTMILL_MAX_STALENESS. A flag wins over its variable. "countmill config" shows
what is in force. "countmill help COMMAND" says more about a command.

Exit codes: 0 it worked, 1 it did not, 2 the command line or the environment is wrong,
3 verify found something wrong.
`)
	return b.String()
}

// usage is the command and its arguments.
func (cmd command) usage() string { return strings.TrimSpace(cmd.name + " " + cmd.args) }

func (cmd command) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: countmill %s%s\n\n", cmd.usage(), cmd.flagsHint())
	if cmd.long == "" {
		cmd.long = strings.ToUpper(cmd.short[:1]) + cmd.short[1:] + ".\n"
	}
	b.WriteString(cmd.long)
	if cmd.flags != nil {
		b.WriteString("\nFlags, with their defaults and variables:\n\n" + cmd.flags())
	}
	return b.String()
}

func (cmd command) flagsHint() string {
	if cmd.flags == nil {
		return ""
	}
	return " [FLAGS]"
}
