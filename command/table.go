package command

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/auth"
)

// A flag is a row of the table. Parsing, help, completion and docs/reference/flags.md are made of
// the rows.
type flag struct {
	name string
	arg  string   // how help writes the value; empty for a switch
	of   []string // the commands that have it: "get", "dead list"
	env  bool     // a variable sets it too
	def  string   // the default in words, if the value cannot say it
	help string
	bind func(*values) pflag.Value // sets the default, too
}

// letter is the name of a flag with one letter, which may be written with one dash.
func (f flag) letter() string {
	if len(f.name) == 1 {
		return f.name
	}
	return ""
}

// variable is the environment variable of the flag, empty if it has none.
func (f flag) variable() string {
	if !f.env {
		return ""
	}
	return variable(f.name)
}

// variable is the environment variable for a flag's name. Kubernetes sets variables like COUNTMILL_PORT
// and COUNTMILL_SERVICE_HOST for a service named countmill: no flag may be called so.
func variable(name string) string {
	return "COUNTMILL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// values are what flags and variables set. Each flag has a place of its own: commands share one
// only if the flag means the same in both.
type values struct {
	roles app.Config // of up, publisher, aggregator, reader and config

	server, token, tokenFile string
	insecure                 bool
	timeout, silence         time.Duration
	before                   string
	database                 string
	list                     bool
	json                     bool

	id, key, at  string
	maxStaleness time.Duration
	minAsOf      string
	after        string
	wait         time.Duration
	last         time.Duration
	step, tz     string
	boardWindow  string // of top and rank
	best         int
	bestOf       string
	limit        int
	count        int
	fix          bool
	watchPrefix  string
	rates        bool
	repeat       bool

	all, asNew, yes bool

	recountFrom, recountTo string
	recountState           string
	repair, opening        bool
	parallel               int

	match, groupPattern  string
	indexSeries          string
	groups               []string
	waits                bool
	periodFrom, periodTo string // of journal export and series

	format, output      string
	rejects, state      string
	sameCaller, history bool
	columns, template   string // of import
	complete            string
	spreadsheet         bool
	window              time.Duration
	prefix              string
	dryRun              bool
	scopes, prefixes    []string
	expires, file, name string
	public              bool
	limits              auth.Limits
}

// A section is rows that belong together in the reference.
type section struct {
	title, intro string
	flags        []flag
}

// table is every flag of every command, in the order of help and reference.
func table() []section {
	return []section{
		{"Roles", "`up` has all of these, and so has `config`, which shows the settings in force. A single role has some of them.", roleFlags},
		{"Commands that call a server", "", callFlags},
		{"incr, reset", "", changeFlags},
		{"next", "", sequenceFlags},
		{"get, ls, top, rank, watch, series, journal, status, verify", "", readFlags},
		{"index", "", indexFlags},
		{"restore", "", restoreFlags},
		{"doctor", "", doctorFlags},
		{"dead", "", deadFlags},
		{"import, export, journal export", "", transferFlags},
		{"token, share", "", tokenFlags},
		{"Output of other commands", "", outputFlags},
	}
}

// flagsOf is the flags of a command.
func flagsOf(path string) []flag {
	var of []flag
	for _, s := range table() {
		for _, f := range s.flags {
			if slices.Contains(f.of, path) {
				of = append(of, f)
			}
		}
	}
	return of
}

// either is pairs of flags for one setting: a flag of a pair wins over the variable of the other.
var either = []struct{ a, b, why string }{
	{"data", "store", "--data DIR is short for --store pebble:DIR"},
	{"token", "token-file", "both name the token to send"},
}

// other is the other flag of a pair, empty for a flag that is in none.
func other(name string) string {
	for _, pair := range either {
		switch name {
		case pair.a:
			return pair.b
		case pair.b:
			return pair.a
		}
	}
	return ""
}
