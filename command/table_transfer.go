package command

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/store"
)

var (
	formats        = []string{string(transfer.CSV), string(transfer.NDJSON)}
	journalFormats = []string{"ndjson", "csv", "parquet"}
)

// format is a row of --format.
func format(of, def string) flag {
	return flag{name: "format", arg: "FORMAT", of: []string{of}, def: def, help: "csv or ndjson.",
		bind: func(v *values) pflag.Value { return textValue{to: &v.format, of: formats} }}
}

var transferFlags = []flag{
	format("import", "by the end of the file's name"),
	{name: "skip-bad", arg: "REJECTS", of: []string{"import"}, def: "refuse the file",
		help: "Leave out rows that cannot be counted, and write them to the file REJECTS: NDJSON with line, reason and row.",
		bind: func(v *values) pflag.Value { return anyValue{&v.rejects} }},
	{name: "state", arg: "STATE", of: []string{"import"}, def: "FILE.countmill-import; none for -",
		help: "File that remembers when the import began.",
		bind: func(v *values) pflag.Value { return anyValue{&v.state} }},
	{name: "series", of: []string{"import"}, help: "Each row counts in the series of its counter at its own time, which may be years ago.",
		bind: func(v *values) pflag.Value { return boolValue{&v.history} }},
	{name: "same-caller", of: []string{"import"}, help: "Go on with another token than the import began with, if both have the same name.",
		bind: func(v *values) pflag.Value { return boolValue{&v.sameCaller} }},
	{name: "dedup-window", arg: "DURATION", of: []string{"import", "adopt gae"}, env: true, help: "The server's --dedup-window.",
		bind: func(v *values) pflag.Value {
			v.window = countmill.DefaultDedupWindow
			return durationValue{to: &v.window, min: time.Second, max: store.MaxWindow}
		}},
	format("export", "by the end of --output, or csv"),
	{name: "format", arg: "FORMAT", of: []string{"journal export"}, def: "by the end of --output, or ndjson", help: "ndjson, csv or parquet. countmill-backup writes parquet.",
		bind: func(v *values) pflag.Value { return textValue{to: &v.format, of: journalFormats} }},
	{name: "from", arg: "TIME", of: []string{"journal export"}, def: "none; needed", help: "The first moment of the period, as 2006-01-02T15:04:05Z, or a date, which begins in UTC. At most six digits follow the seconds.",
		bind: func(v *values) pflag.Value { return dayValue{momentValue{&v.periodFrom}} }},
	{name: "to", arg: "TIME", of: []string{"journal export"}, def: "none; needed", help: "The moment, or the date, after the period. The journal must be complete up to it.",
		bind: func(v *values) pflag.Value { return dayValue{momentValue{&v.periodTo}} }},
	{name: "output", arg: "FILE", of: []string{"export", "journal export"}, help: "File to write; - is standard output.",
		bind: func(v *values) pflag.Value {
			v.output = "-"
			return anyValue{&v.output}
		}},
}

// adoptFlag is a flag of adopt gae.
func adoptFlag(name, arg, def, help string, bind func(*values) pflag.Value) flag {
	return flag{name: name, arg: arg, of: []string{"adopt gae"}, def: def, help: help, bind: bind}
}

var adoptFlags = []flag{
	adoptFlag("project", "PROJECT", "none; needed", "Id of the Google Cloud project. DATASTORE_EMULATOR_HOST works as in Google's libraries.",
		func(v *values) pflag.Value { return anyValue{&v.source.Project} }),
	adoptFlag("database", "DATABASE", "the project's default database", "Id of the database.",
		func(v *values) pflag.Value { return anyValue{&v.source.Database} }),
	adoptFlag("namespace", "NAMESPACE", "the default namespace", "Namespace of the old counters.",
		func(v *values) pflag.Value { return anyValue{&v.source.Namespace} }),
	adoptFlag("java", "NAME", "all, by a query of kinds", "A counter of Java's low-level code; may be repeated. The Firestore emulator has no query of kinds: name the counters, or pass --java \"\" for none.",
		func(v *values) pflag.Value { return listValue{&v.source.JavaNames, false} }),
	adoptFlag("prefix", "PREFIX", "none", "Text to put before every name.",
		func(v *values) pflag.Value { return anyValue{&v.prefix} }),
	adoptFlag("go-total", "NAME", "", "Counter for the grand total of Go's shards.",
		func(v *values) pflag.Value {
			v.goTotal = "GeneralCounterShard"
			return anyValue{&v.goTotal}
		}),
	adoptFlag("simple", "NAME", "", "Counter for the total of the simple versions.",
		func(v *values) pflag.Value {
			v.simple = "SimpleCounterShard"
			return anyValue{&v.simple}
		}),
	adoptFlag("skip-unknown", "", "", "Leave out entities of the shards' kinds that are in no layout of the article, and counters whose names or totals (beyond 2^53-1) one increment cannot have. Without it, adopt imports nothing then.",
		func(v *values) pflag.Value { return boolValue{&v.skipUnknown} }),
	adoptFlag("dry-run", "", "", "Print what adopt would import, and import nothing.",
		func(v *values) pflag.Value { return boolValue{&v.dryRun} }),
	adoptFlag("snapshot", "SNAPSHOT", "countmill-adopt-PROJECT[-DATABASE][-NAMESPACE].ndjson", "File for the rows to import.",
		func(v *values) pflag.Value { return anyValue{&v.snapshot} }),
	adoptFlag("since", "SNAPSHOT", "none", "Import only the growth of the counters since this snapshot. Repeat it for each snapshot that was imported. Needs --snapshot.",
		func(v *values) pflag.Value { return listValue{&v.since, false} }),
}
