package command

import (
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
)

// The sections of docs/reference/flags.md, for flags that commands of several sections have.
const (
	rolesSection  = "Roles"
	callsSection  = "Commands that call a server"
	changeSection = "incr, reset"
	nextSection   = "next"
	readSection   = "get, ls, top, rank, watch, series, journal, status, verify"
	indexSection  = "index"
	moveSection   = "import, export, journal export"
	tokenSection  = "token, share"
	otherSection  = "Output of other commands"
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
			{ID: "set", Title: "Plan and set up"},
		},
		Families: []cli.Command{ruleFamily, indexFamily, deadFamily, adoptFamily, tokenFamily},
		Commands: []cli.Command{
			upCommand, publisherCommand, aggregatorCommand, readerCommand,
			incrCommand, getCommand, lsCommand, topCommand, rankCommand, seriesCommand, journalCommand, watchCommand, nextCommand,
			growCommand, resetCommand, deleteCommand, ruleAddCommand, ruleListCommand, ruleRemoveCommand,
			indexCreateCommand, indexListCommand, indexDeleteCommand, indexWorkCommand,
			statusCommand, doctorCommand, readyCommand, shardsCommand, verifyCommand, recountCommand, backupCommand, restoreCommand, journalEraseCommand, journalExportCommand,
			deadListCommand, deadShowCommand, deadReplayCommand, deadDiscardCommand,
			importCommand, exportCommand, adoptCommand,
			planCommand, tokenCommand, tokenListCommand, tokenRemoveCommand, shareCommand, configCommand,
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
			{Title: callsSection}, {Title: changeSection}, {Title: nextSection}, {Title: readSection}, {Title: indexSection},
			{Title: "restore"}, {Title: "doctor"}, {Title: "dead"}, {Title: moveSection}, {Title: "adopt"}, {Title: tokenSection},
			{Title: "plan", Intro: "`plan` starts nothing and asks no server. Numbers may be written as 1e6."},
			{Title: otherSection},
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

// A calling verb calls a server.
type calling struct {
	call
	server, token, tokenFile string
	insecure, json           bool
	timeout                  time.Duration
}

// The usual help of --json.
const (
	oneAnswer = "Write the server's answer as it is."
	pages     = "Write the server's answers as they are, a page a line."
)

// usual is the default of --timeout. The longest time-out is for backups of large stores.
const (
	usual                  = 15 * time.Second
	minTimeout, maxTimeout = time.Millisecond, 30 * 24 * time.Hour
)

// flags are those of a call and then the verb's own. json is the help of --json; empty for none.
func (c *calling) flags(timeout time.Duration, json string, own ...cli.Flag) []cli.Flag {
	c.server, c.timeout = "http://"+app.DefaultListen, timeout
	all := []cli.Flag{
		cli.New("server", "URL", cli.Any(&c.server), "The countmill to call.").FromEnv(),
		cli.New("timeout", "DURATION", cli.Duration{To: &c.timeout, Min: minTimeout, Max: maxTimeout},
			"How long the server may take to answer one call, repeats included. It does not bound how long a command or a stream lives.").FromEnv(),
		cli.New("token", "TOKEN", cli.Any(&c.token),
			"The bearer token to send. Other users of this machine see it in the list of processes: prefer the variable or --token-file.").
			FromEnv().Default("none").Instead("token-file", "both name the token to send"),
		cli.New("token-file", "FILE", cli.Any(&c.tokenFile), "File with the token alone.").FromEnv().Default("none"),
		cli.Switch("insecure", &c.insecure, "Send the token over plain http to other machines too."),
	}
	if json != "" {
		all = append(all, cli.Switch("json", &c.json, json))
	}
	return append(cli.In(callsSection, all...), own...)
}
