package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// root is the command line as cobra has it.
func (r *running) root() *cobra.Command {
	root := &cobra.Command{Use: r.Name, SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2}
	root.CompletionOptions.DisableDefaultCmd = true // Completion is the command
	root.SetOut(r.Stdout)
	root.SetErr(r.Stderr)
	for _, g := range r.Groups {
		root.AddGroup(&cobra.Group{ID: g.ID, Title: g.Title})
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _, _ = io.WriteString(r.Stdout, r.help(cmd)) })
	root.SetUsageFunc(func(*cobra.Command) error { return nil })
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return r.flagError(err, cmd.Flags()) })
	parents := map[string]*cobra.Command{"": root}
	for _, family := range r.Families {
		parents[family.Path] = r.newFamily(family)
		root.AddCommand(parents[family.Path])
	}
	for _, cmd := range r.Commands {
		parent, _, two := strings.Cut(cmd.Path, " ")
		if !two {
			parent = ""
		}
		made := r.newCommand(cmd)
		parents[parent].AddCommand(made)
		if !two {
			parents[cmd.Path] = made // of the commands that name it first
		}
	}
	root.SetHelpCommand(r.newHelp(root))
	return root
}

// newCommand runs cmd with its flags and variables read.
func (r *running) newCommand(cmd Command) *cobra.Command {
	words := strings.Fields(cmd.Path)
	made := &cobra.Command{
		Use: strings.TrimSpace(words[len(words)-1] + " " + cmd.Args), Short: cmd.Short, Long: cmd.Long, Args: cobra.ArbitraryArgs,
		DisableFlagsInUseLine: true,
	}
	if len(words) == 1 {
		made.GroupID = cmd.Group
	}
	if !strings.Contains(cmd.Args, "FILE") && !strings.Contains(cmd.Args, "DIR") {
		made.ValidArgsFunction = cobra.NoFileCompletions
	}
	verb := cmd.New()
	p := r.newParsed(cmd.Path, verb, made.Flags())
	completeValues(made, p.flags)
	made.RunE = func(ran *cobra.Command, args []string) error {
		if err := p.finish(r.Lookup); err != nil {
			return err
		}
		verb.Begin(Input{Parsed: p, Args: args, Host: r.Host, program: r})
		if cmd.Args == "" && len(args) > 0 {
			return errArguments(args[0])
		}
		err := verb.Run(ran.Context())
		if err != nil && r.Explain != nil {
			err = r.Explain(verb, cmd, err)
		}
		return err
	}
	return made
}

// completeValues completes the flags that take one of a few words.
func completeValues(made *cobra.Command, flags []Flag) {
	for _, f := range flags {
		switch value := f.Value.(type) {
		case Text:
			if len(value.Of) > 0 {
				_ = made.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(value.Of, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
			}
		case Duration, Count, Size, Rate, wholeValue:
			_ = made.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	}
}

// newFamily is an error that lists the next words, if none of them was given.
func (r *running) newFamily(cmd Command) *cobra.Command {
	made := &cobra.Command{Use: cmd.Path + " " + cmd.Args, Short: cmd.Short, Long: cmd.Long, GroupID: cmd.Group, Args: cobra.ArbitraryArgs}
	made.FParseErrWhitelist.UnknownFlags = true // the missing word is the error, not the flags
	made.ValidArgsFunction = cobra.NoFileCompletions
	made.RunE = func(made *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef("say what to do: %s", strings.Join(r.subcommands(made), ", "))
		}
		return Usagef("unknown %q%s", args[0], r.orOneOf(args[0], r.subcommands(made)))
	}
	return made
}

func (p *Program) subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range p.inOrder(cmd.Commands()) {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return names
}

// inOrder is commands in the order of the help: cobra sorts them by name.
func (p *Program) inOrder(cmds []*cobra.Command) []*cobra.Command {
	rank := make(map[string]int)
	for i, cmd := range p.Commands {
		rank[cmd.Path] = i
		if family, _, two := strings.Cut(cmd.Path, " "); two {
			rank[family] = i
		}
	}
	rank["help"] = len(rank)
	return slices.SortedFunc(slices.Values(cmds), func(a, b *cobra.Command) int { return rank[p.path(a)] - rank[p.path(b)] })
}

// orOneOf ends an error about word with the likely names, or with all.
func (p *Program) orOneOf(word string, names []string) string {
	if meant := p.DidYouMean("", word, names); meant != "" {
		return meant
	}
	return " (try one of: " + strings.Join(names, ", ") + ")"
}

// DidYouMean asks for a name that is like word. It is empty if no name is like word.
func (p *Program) DidYouMean(prefix, word string, names []string) string {
	like := p.meant(word, names)
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

// meant are the names that mean the same as word.
func (p *Program) meant(word string, names []string) []string {
	var found []string
	for _, words := range p.Words {
		if slices.Contains(words, strings.ToLower(word)) {
			found = append(found, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(words, name) })...)
		}
	}
	return found
}
