package command

import (
	"github.com/countmill/countmill/command/cli"
)

// The sections of docs/reference/flags.md that have flags of commands of other sections.
const (
	rolesSection = "Roles"
	callsSection = "Commands that call a server"
	otherSection = "Output of other commands"
)

// program is the command line of countmill.
func program() *cli.Program {
	p := &cli.Program{
		Name: "countmill", Env: "COUNTMILL_", HelpGroup: "set",
		Groups: []cli.Group{
			{ID: "run", Title: "Run countmill"},
			{ID: "count", Title: "Count and read"},
			{ID: "change", Title: "Change counters"},
			{ID: "look", Title: "Look after a countmill"},
			{ID: "move", Title: "Bring counters in and out"},
			{ID: "set", Title: "Set up"},
		},
		Families: []cli.Command{ruleFamily, indexFamily, deadFamily, tokenFamily},
		Commands: []cli.Command{
			upCommand, publisherCommand, aggregatorCommand, readerCommand,
			incrCommand, getCommand, lsCommand, topCommand, rankCommand, seriesCommand, journalCommand, watchCommand, nextCommand,
			growCommand, resetCommand, deleteCommand, ruleAddCommand, ruleListCommand, ruleRemoveCommand,
			indexCreateCommand, indexListCommand, indexDeleteCommand, indexWorkCommand,
			statusCommand, doctorCommand, readyCommand, shardsCommand, verifyCommand, recountCommand, backupCommand, restoreCommand, journalEraseCommand, journalExportCommand,
			deadListCommand, deadShowCommand, deadReplayCommand, deadDiscardCommand,
			importCommand, exportCommand,
			tokenCommand, tokenListCommand, tokenRemoveCommand, shareCommand, configCommand,
		},
		// add is incr, "rule add" and "token new".
		Words: [][]string{
			{"incr", "increment", "add", "count", "hit"},
			{"get", "read", "total", "totals", "show", "value"},
			{"ls", "list", "counters"},
			{"add", "create", "new", "make", "set"},
			{"delete", "remove", "rm", "del", "drop", "revoke"},
			{"up", "start", "run", "serve", "server"},
			{"top", "best", "leaderboard"},
			{"series", "curve", "chart", "graph", "history"},
		},
		Head: `countmill counts: increments in, exact totals out, every increment once.

Usage: countmill COMMAND [ARGUMENTS] [FLAGS]
`,
		Foot: `
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
`,
		Preface: `# Flags

Every flag of every command. A test writes this page from the table that the commands read
(` + "`COUNTMILL_WRITE_REFERENCE=1 go test ./command -run TestReference`" + `): change it there.

A flag wins over its variable, the variable over the default. An empty variable counts as unset. Durations
are written as 250ms, 2h, 8d or 1d12h, sizes as 65536 or 64MiB. ` + "`" + `countmill help COMMAND` + "`" + ` shows the flags of a
command, ` + "`" + `countmill config` + "`" + ` the settings in force. [Contributing](../../CONTRIBUTING.md#change-a-default) says where defaults are.
`,
		Sections: []cli.Section{
			{Title: rolesSection, Intro: "`up` has all of these, and so has `config`, which shows the settings in force. A single role has some of them."},
			{Title: callsSection},
			{Title: "incr, reset", Of: []string{"incr", "reset"}},
			{Title: "next", Of: []string{"next"}},
			{
				Title: "get, ls, top, rank, watch, series, journal, status, verify",
				Of:    []string{"get", "ls", "top", "rank", "watch", "series", "journal", "journal erase", "status", "verify", "recount"},
			},
			{Title: "index", Of: []string{"index create", "index delete"}},
			{Title: "restore", Of: []string{"restore"}},
			{Title: "doctor", Of: []string{"doctor"}},
			{Title: "dead", Of: []string{"dead list", "dead replay", "dead discard"}},
			{Title: "import, export, journal export", Of: []string{"import", "export", "journal export"}},
			{Title: "token, share", Of: []string{"token new", "token list", "token remove", "share"}},
			{Title: otherSection, Of: []string{"version", "config"}},
		},
		Explain: explain,
	}
	p.Commands = append(p.Commands, p.Completion("set"), versionCommand)
	return p
}

// UnknownEnv returns the COUNTMILL_ variables that no flag has, for a warning. It leaves out the
// variables that Kubernetes sets for services.
func UnknownEnv(environ []string) []string { return program().UnknownEnv(environ) }

// A call is what every verb has beside its flags.
type call struct {
	*cli.Parsed
	*host
	args []string
}

func (c *call) Begin(in cli.Input) {
	c.Parsed, c.host, c.args = in.Parsed, in.Host.(*host), in.Args
}
