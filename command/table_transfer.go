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
	importFormats  = append(formats, string(transfer.CLF))
	journalFormats = []string{"ndjson", "csv", "parquet"}
)

var transferFlags = []flag{
	{name: "format", arg: "FORMAT", of: []string{"import"}, def: "by the end of the file's name", help: "csv, ndjson, or clf: an access log in the common or combined format.",
		bind: func(v *values) pflag.Value { return textValue{to: &v.format, of: importFormats} }},
	{name: "columns", arg: "COLUMNS", of: []string{"import"}, def: "those named counter, delta, id and time; no others",
		help: "Names of CSV columns, such as counter=path,delta=hits,time=date. Other columns are ignored; without delta each row counts 1.",
		bind: func(v *values) pflag.Value { return anyValue{&v.columns} }},
	{name: "counter", arg: "TEMPLATE", of: []string{"import"}, def: "none; needed with --format clf",
		help: "Counter of a line of an access log, such as page:{path}. It may have {host}, {method}, {path} and {status}. The path is without its query.",
		bind: func(v *values) pflag.Value { return anyValue{&v.template} }},
	{name: "tz", arg: "ZONE", of: []string{"import"}, help: "The time zone of dates and times that name none, such as Asia/Kolkata.",
		bind: func(v *values) pflag.Value {
			v.tz = "UTC"
			return anyValue{&v.tz}
		}},
	{name: "prefix", arg: "PREFIX", of: []string{"import"}, def: "none", help: "Text to put before every name.",
		bind: func(v *values) pflag.Value { return anyValue{&v.prefix} }},
	{name: "dry-run", of: []string{"import"}, help: "Print the increments that would be counted, as NDJSON, and count nothing.",
		bind: func(v *values) pflag.Value { return boolValue{&v.dryRun} }},
	{name: "skip-bad", arg: "REJECTS", of: []string{"import"}, def: "refuse the file",
		help: "Leave out rows that cannot be counted, and write them to the file REJECTS: NDJSON with line, reason and row.",
		bind: func(v *values) pflag.Value { return anyValue{&v.rejects} }},
	{name: "state", arg: "STATE", of: []string{"import"}, def: "FILE.countmill-import; none for -",
		help: "File that remembers when the import began.",
		bind: func(v *values) pflag.Value { return anyValue{&v.state} }},
	{name: "series", of: []string{"import"}, help: "Each row counts in the series of its counter at its own time, which may be years ago.",
		bind: func(v *values) pflag.Value { return boolValue{&v.history} }},
	{name: "complete", arg: "FROM/TO", of: []string{"import"}, def: "none", help: "A period of which the file has all counts of all counters of its rules, as two times, or dates in --tz. With --series: rows of that period are not partial.",
		bind: func(v *values) pflag.Value { return anyValue{&v.complete} }},
	{name: "same-caller", of: []string{"import"}, help: "Go on with another token than the import began with, if both have the same name.",
		bind: func(v *values) pflag.Value { return boolValue{&v.sameCaller} }},
	{name: "dedup-window", arg: "DURATION", of: []string{"import"}, env: true, help: "The server's --dedup-window.",
		bind: func(v *values) pflag.Value {
			v.window = countmill.DefaultDedupWindow
			return durationValue{to: &v.window, min: time.Second, max: store.MaxWindow}
		}},
	{name: "format", arg: "FORMAT", of: []string{"export"}, def: "by the end of --output, or csv", help: "csv or ndjson.",
		bind: func(v *values) pflag.Value { return textValue{to: &v.format, of: formats} }},
	{name: "spreadsheet", of: []string{"export", "journal export"}, help: "Write CSV of which a spreadsheet runs nothing: it puts an apostrophe before names that begin with =, +, -, @ or an apostrophe, and in the header. An import takes it away.",
		bind: func(v *values) pflag.Value { return boolValue{&v.spreadsheet} }},
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
