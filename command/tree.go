package command

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countmill/countmill/internal/app"
)

// A command is a word after countmill, or two.
type command struct {
	path  string    // "get", "dead list"
	group string    // in the overview
	roles app.Roles // to run; 0 for none
	args  string    // how the arguments are written
	short string    // half a line
	long  string    // for a person; ends with a newline
	run   func(ctx context.Context, c call) error
}

// The groups of the overview, in its order.
var groups = []*cobra.Group{
	{ID: "run", Title: "Run countmill"},
	{ID: "count", Title: "Count and read"},
	{ID: "change", Title: "Change counters"},
	{ID: "look", Title: "Look after a countmill"},
	{ID: "move", Title: "Bring counters in and out"},
	{ID: "set", Title: "Set up"},
}

// commands is every command that does something, in the order of the help.
func commands() []command {
	return []command{
		upCommand, publisherCommand, aggregatorCommand, readerCommand,
		incrCommand, getCommand, lsCommand, topCommand, rankCommand, seriesCommand, journalCommand, watchCommand, nextCommand,
		growCommand, resetCommand, deleteCommand, ruleAddCommand, ruleListCommand, ruleRemoveCommand,
		indexCreateCommand, indexListCommand, indexDeleteCommand, indexWorkCommand,
		statusCommand, doctorCommand, readyCommand, shardsCommand, verifyCommand, recountCommand, backupCommand, restoreCommand, journalEraseCommand, journalExportCommand,
		deadListCommand, deadShowCommand, deadReplayCommand, deadDiscardCommand,
		importCommand, exportCommand,
		tokenCommand, tokenListCommand, tokenRemoveCommand, shareCommand, configCommand, completionCommand(), versionCommand,
	}
}

// families are commands whose next word says what to do.
var families = []command{ruleFamily, indexFamily, deadFamily, tokenFamily}

// newRoot is the command line as cobra has it.
func newRoot(c call) *cobra.Command {
	root := &cobra.Command{Use: "countmill", SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2}
	root.CompletionOptions.DisableDefaultCmd = true // it is a command of ours, and in the table
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.AddGroup(groups...)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _, _ = io.WriteString(c.stdout, help(cmd)) })
	root.SetUsageFunc(func(*cobra.Command) error { return nil })
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(err, cmd.Flags()) })
	parents := map[string]*cobra.Command{"": root}
	for _, family := range families {
		parents[family.path] = newFamily(family)
		root.AddCommand(parents[family.path])
	}
	for _, cmd := range commands() {
		parent, _, two := strings.Cut(cmd.path, " ")
		if !two {
			parent = ""
		}
		made := newCommand(cmd, c)
		parents[parent].AddCommand(made)
		if !two {
			parents[cmd.path] = made // of the commands that name it first
		}
	}
	root.SetHelpCommand(newHelp(root, c))
	return root
}

// newCommand runs cmd with its flags and variables read.
func newCommand(cmd command, c call) *cobra.Command {
	words := strings.Fields(cmd.path)
	made := &cobra.Command{
		Use: strings.TrimSpace(words[len(words)-1] + " " + cmd.args), Short: cmd.short, Long: cmd.long, Args: cobra.ArbitraryArgs,
		DisableFlagsInUseLine: true,
	}
	if len(words) == 1 {
		made.GroupID = cmd.group
	}
	if !strings.Contains(cmd.args, "FILE") && !strings.Contains(cmd.args, "DIR") {
		made.ValidArgsFunction = cobra.NoFileCompletions
	}
	p := newParser(cmd.path, cmd.roles)
	p.roles.Stores, p.roles.Buses, p.roles.Buckets = c.stores, c.buses, c.buckets
	p.bind(made.Flags())
	completeValues(made, p)
	made.RunE = func(ran *cobra.Command, args []string) error {
		if err := p.finish(c.lookup); err != nil {
			return err
		}
		c.parser, c.args = p, args
		if cmd.args == "" && len(args) > 0 {
			return errArguments(args[0])
		}
		return c.asTyped(c.remedied(cmd.run(ran.Context(), c)), cmd.args)
	}
	return made
}

// completeValues completes the flags that take one of a few words.
func completeValues(made *cobra.Command, p *parser) {
	for _, f := range p.flags {
		switch value := p.set.Lookup(f.name).Value.(notedValue).Value.(type) {
		case textValue:
			if len(value.of) > 0 {
				_ = made.RegisterFlagCompletionFunc(f.name, cobra.FixedCompletions(value.of, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
			}
		case durationValue, countValue, sizeValue, rateValue, wholeValue:
			_ = made.RegisterFlagCompletionFunc(f.name, cobra.NoFileCompletions)
		}
	}
}

// newFamily is an error that lists the next words, if none of them was given.
func newFamily(cmd command) *cobra.Command {
	made := &cobra.Command{Use: cmd.path + " " + cmd.args, Short: cmd.short, Long: cmd.long, GroupID: cmd.group, Args: cobra.ArbitraryArgs}
	made.FParseErrWhitelist.UnknownFlags = true // the missing word is the error, not the flags
	made.ValidArgsFunction = cobra.NoFileCompletions
	made.RunE = func(made *cobra.Command, args []string) error {
		if len(args) == 0 {
			return app.Usagef("say what to do: %s", strings.Join(subcommands(made), ", "))
		}
		return app.Usagef("unknown %q%s", args[0], orOneOf(args[0], subcommands(made)))
	}
	return made
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range inOrder(cmd.Commands()) {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return names
}

// inOrder is commands in the order of the help: cobra sorts them by name.
func inOrder(cmds []*cobra.Command) []*cobra.Command {
	rank := make(map[string]int)
	for i, cmd := range commands() {
		rank[cmd.path] = i
		if family, _, two := strings.Cut(cmd.path, " "); two {
			rank[family] = i
		}
	}
	rank["help"] = len(rank)
	return slices.SortedFunc(slices.Values(cmds), func(a, b *cobra.Command) int { return rank[path(a)] - rank[path(b)] })
}

// orOneOf ends an error about word with the likely names, or with all.
func orOneOf(word string, names []string) string {
	if meant := didYouMean("", word, names); meant != "" {
		return meant
	}
	return " (try one of: " + strings.Join(names, ", ") + ")"
}

// didYouMean is empty if no name is like word.
func didYouMean(prefix, word string, names []string) string {
	like := meant(word, names)
	if len(like) == 0 {
		known := &cobra.Command{SuggestionsMinimumDistance: min(2, len(word)-1)}
		for _, name := range names {
			known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
		}
		like = known.SuggestionsFor(word)
	}
	if len(like) == 0 {
		return ""
	}
	return "; did you mean " + prefix + strings.Join(like, " or "+prefix) + "?"
}

// otherWords are words that people type, each line for one command in its place: add is incr, "rule add" and
// "token new".
var otherWords = [][]string{
	{"incr", "increment", "add", "count", "hit"},
	{"get", "read", "total", "totals", "show", "value"},
	{"ls", "list", "counters"},
	{"add", "create", "new", "make", "set"},
	{"delete", "remove", "rm", "del", "drop", "revoke"},
	{"up", "start", "run", "serve", "server"},
	{"top", "best", "leaderboard"},
	{"series", "curve", "chart", "graph", "history"},
}

// meant are the names that mean the same as word.
func meant(word string, names []string) []string {
	var found []string
	for _, words := range otherWords {
		if slices.Contains(words, strings.ToLower(word)) {
			found = append(found, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(words, name) })...)
		}
	}
	return found
}

// execute runs the command line.
func execute(ctx context.Context, c call) (ran *cobra.Command, err error) {
	root := newRoot(c)
	args, cmd, err := rewrite(root, c.args)
	if err != nil {
		return cmd, err
	}
	root.SetArgs(args)
	return root.ExecuteContextC(ctx)
}
