package command

import (
	"math"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/store"
)

// Commands that call a server. Those in oneAnswer print it, or a part of it.
var (
	oneAnswer = []string{"incr", "get", "next", "grow", "reset", "delete", "ready", "shards", "backup", "dead show", "dead replay", "dead discard", "rule add", "rule list", "rule remove", "index create", "index list", "index delete", "series", "top", "rank"}
	pages     = []string{"ls", "verify", "recount", "dead list", "journal"}
	calls     = slices.Concat([]string{"status", "doctor", "watch", "export", "import", "journal erase", "journal export"}, oneAnswer, pages)
)

// without is of without some commands.
func without(of []string, but ...string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(path string) bool { return slices.Contains(but, path) })
}

// The longest time-out is for backups of large stores.
const minTimeout, maxTimeout = time.Millisecond, 30 * 24 * time.Hour

// timeout is the row for commands with this default.
func timeout(def time.Duration, of ...string) flag {
	return flag{name: "timeout", arg: "DURATION", of: of, env: true,
		help: "How long the server may take to answer one call, repeats included. It does not bound how long a command or a stream lives.",
		bind: func(v *values) pflag.Value {
			v.timeout = def
			return durationValue{to: &v.timeout, min: minTimeout, max: maxTimeout}
		}}
}

// asJSON is a row of --json.
func asJSON(help string, of ...string) flag {
	return flag{name: "json", of: of, help: help, bind: func(v *values) pflag.Value { return boolValue{&v.json} }}
}

var callFlags = []flag{
	{name: "server", arg: "URL", of: calls, env: true, help: "The countmill to call.",
		bind: func(v *values) pflag.Value {
			v.server = "http://" + app.DefaultListen
			return anyValue{&v.server}
		}},
	timeout(15*time.Second, without(calls, "verify", "recount", "import", "backup")...),
	timeout(2*time.Minute, "import"),
	timeout(10*time.Minute, "backup", "verify"), // the server's own
	timeout(time.Hour, "recount"),               // the server's own
	{name: "silence", arg: "DURATION", of: []string{"watch"}, help: "The longest silence of the server, which sends something every 15s.",
		bind: func(v *values) pflag.Value {
			v.silence = 30 * time.Second
			return durationValue{to: &v.silence, min: minTimeout, max: maxTimeout}
		}},
	{name: "token", arg: "TOKEN", of: calls, env: true, def: "none",
		help: "The bearer token to send. Other users of this machine see it in the list of processes: prefer the variable or --token-file.",
		bind: func(v *values) pflag.Value { return anyValue{&v.token} }},
	{name: "token-file", arg: "FILE", of: calls, env: true, def: "none", help: "File with the token alone.",
		bind: func(v *values) pflag.Value { return anyValue{&v.tokenFile} }},
	{name: "insecure", of: calls, help: "Send the token over plain http to other machines too.",
		bind: func(v *values) pflag.Value { return boolValue{&v.insecure} }},
	asJSON("Write the server's answer as it is.", oneAnswer...),
	asJSON("Write the server's answers as they are, a page a line.", pages...),
	asJSON("Write the server's events as they are.", "watch"),
	asJSON("Write the problems, and the server's answer as it is, as one JSON object a look.", "status"),
	asJSON("Short for --format ndjson.", "export"),
	asJSON("Write the result as JSON.", "import"),
}

var changeFlags = []flag{
	{name: "id", arg: "ID", of: []string{"incr"}, def: "none", help: "Name of the event: the same ID on the same counter counts once.",
		bind: func(v *values) pflag.Value { return anyValue{&v.id} }},
	{name: "key", arg: "KEY", of: []string{"incr"}, def: "random, without --id", help: "Idempotency-Key of the request: the same KEY with the same request counts once.",
		bind: func(v *values) pflag.Value { return anyValue{&v.key} }},
	{name: "time", arg: "TIME", of: []string{"incr"}, def: "now", help: "When it happened, as 2006-01-02T15:04:05Z.",
		bind: func(v *values) pflag.Value { return anyValue{&v.at} }},
	{name: "id", arg: "ID", of: []string{"reset"}, def: "random",
		help: "Name of this reset, 1 to 128 bytes. A repeat with the same ID within the deduplication window changes nothing and prints the same.",
		bind: func(v *values) pflag.Value { return anyValue{&v.id} }},
}

var sequenceFlags = []flag{
	{name: "id", arg: "ID", of: []string{"next"}, def: "random",
		help: "Name of this request, 1 to 128 bytes. A repeat with the same ID within the deduplication window prints the same.",
		bind: func(v *values) pflag.Value { return anyValue{&v.id} }},
	{name: "count", arg: "N", of: []string{"next"},
		help: "How many values, at most 1000. With it the command prints the first and the last one.",
		bind: func(v *values) pflag.Value {
			v.count = 1
			return countValue{to: &v.count, min: 1, max: countmill.MaxValues}
		}},
}

var readFlags = []flag{
	{name: "max-staleness", arg: "DURATION", of: []string{"get"}, def: "the server's", help: "How old a total may be; 0s reads the store.",
		bind: func(v *values) pflag.Value { return durationValue{to: &v.maxStaleness, max: time.Hour} }},
	{name: "min-as-of", arg: "TIME", of: []string{"get", "watch", "ls"}, def: "any",
		help: "Only totals of this moment or a later one: the as_of or counted_as_of of an earlier answer.",
		bind: func(v *values) pflag.Value { return momentValue{&v.minAsOf} }},
	{name: "after", arg: "RECEIPT", of: []string{"get"}, def: "none", help: "Only totals that contain every increment of this receipt.",
		bind: func(v *values) pflag.Value { return anyValue{&v.after} }},
	{name: "wait", arg: "DURATION", of: []string{"get"}, def: "0s", help: "With --after: how long to wait until the increments are counted.",
		bind: func(v *values) pflag.Value { return durationValue{to: &v.wait, max: 5 * time.Second} }},
	{name: "group", arg: "GROUP", of: []string{"get", "watch", "series", "rank"}, def: "none", help: "A group of an index, beside NAMEs or instead of them; short for the NAME =GROUP. May be repeated, but for rank.",
		bind: func(v *values) pflag.Value { return listValue{&v.groups, false} }},
	{name: "limit", arg: "N", of: []string{"ls"}, help: "Stop after N counters. 0: all.",
		bind: func(v *values) pflag.Value { return countValue{to: &v.limit, max: math.MaxInt32} }},
	{name: "n", arg: "N", of: []string{"top"}, help: "How many counters. -n N is the same.",
		bind: func(v *values) pflag.Value {
			v.best = 10
			return countValue{to: &v.best, min: 1, max: 1000}
		}},
	{name: "window", arg: "WINDOW", of: []string{"top", "rank"}, def: "none: totals", help: "Order by the increments of today, this-week or this-month of --tz, or of the last 1h.",
		bind: func(v *values) pflag.Value {
			return textValue{to: &v.boardWindow, of: []string{"today", "this-week", "this-month", "1h"}}
		}},
	{name: "of", arg: "WHAT", of: []string{"top"}, help: "Order the counters of the index, or its groups.",
		bind: func(v *values) pflag.Value {
			v.bestOf = "counters"
			return textValue{to: &v.bestOf, of: []string{"counters", "groups"}}
		}},
	{name: "id", arg: "ID", of: []string{"journal"}, def: "none", help: "Only the increment with this id.",
		bind: func(v *values) pflag.Value { return anyValue{&v.id} }},
	{name: "after", arg: "KEY", of: []string{"journal"}, def: "none", help: "Only entries after this key.",
		bind: func(v *values) pflag.Value { return anyValue{&v.after} }},
	{name: "yes", of: []string{"journal erase"}, help: "Erase. Nothing can undo that.",
		bind: func(v *values) pflag.Value { return boolValue{&v.yes} }},
	{name: "before", arg: "KEY", of: []string{"journal"}, def: "none", help: "The entries just before this key, up to 1,000.",
		bind: func(v *values) pflag.Value { return anyValue{&v.before} }},
	{name: "limit", arg: "N", of: []string{"journal"}, help: "Stop after N entries. 0: all.",
		bind: func(v *values) pflag.Value { return countValue{to: &v.limit, max: math.MaxInt32} }},
	{name: "prefix", arg: "PREFIX", of: []string{"watch"}, def: "none", help: "Watch the counters whose names begin with PREFIX, instead of NAMEs.",
		bind: func(v *values) pflag.Value { return anyValue{&v.watchPrefix} }},
	{name: "limit", arg: "N", of: []string{"watch"}, help: "With --prefix: the most counters, the first ones by name.",
		bind: func(v *values) pflag.Value {
			v.limit = 100
			return countValue{to: &v.limit, min: 1, max: maxWatchLimit}
		}},
	{name: "rates", of: []string{"watch"}, help: "Print the change a second too. A line then appears for each change of it.",
		bind: func(v *values) pflag.Value { return boolValue{&v.rates} }},
	{name: "watch", of: []string{"status"}, help: "Look again every 2 s, until Ctrl-C.",
		bind: func(v *values) pflag.Value { return boolValue{&v.repeat} }},
	{name: "last", arg: "DURATION", of: []string{"series"}, help: "How far back to go, from 1m to 3660d.",
		bind: func(v *values) pflag.Value {
			v.last = 24 * time.Hour
			return durationValue{to: &v.last, min: time.Minute, max: store.MaxKeep}
		}},
	{name: "from", arg: "TIME", of: []string{"series"}, def: "--last before --to", help: "The beginning, as 2006-01-02T15:04:05Z, or a date in --tz.",
		bind: func(v *values) pflag.Value { return anyValue{&v.periodFrom} }},
	{name: "to", arg: "TIME", of: []string{"series"}, def: "now", help: "The end, as 2006-01-02T15:04:05Z, or a date in --tz.",
		bind: func(v *values) pflag.Value { return anyValue{&v.periodTo} }},
	{name: "step", arg: "STEP", of: []string{"series"}, def: "fits a terminal", help: "The time of a row: 1m, 5m, 15m, 1h, 1d, 1w, 1mo, 1y and others. Steps below 15m need minutes, which the rule keeps for hours.",
		bind: func(v *values) pflag.Value { return anyValue{&v.step} }},
	{name: "tz", arg: "ZONE", of: []string{"top", "rank", "series"}, help: "The time zone of days and longer times, such as Asia/Kolkata.",
		bind: func(v *values) pflag.Value {
			v.tz = "UTC"
			return anyValue{&v.tz}
		}},
	{name: "fix", of: []string{"verify"}, help: "Fix problems whose fix is safe.",
		bind: func(v *values) pflag.Value { return boolValue{&v.fix} }},
	{name: "from", arg: "TIME", of: []string{"recount"}, def: "any", help: "Compare only buckets from this time or date on, and no totals.",
		bind: func(v *values) pflag.Value { return dayValue{momentValue{&v.recountFrom}} }},
	{name: "to", arg: "TIME", of: []string{"recount"}, def: "any", help: "Compare only buckets before this time or date, and no totals.",
		bind: func(v *values) pflag.Value { return dayValue{momentValue{&v.recountTo}} }},
	{name: "repair", of: []string{"recount"}, help: "Correct the sums that differ from the journal.",
		bind: func(v *values) pflag.Value { return boolValue{&v.repair} }},
	{name: "opening", of: []string{"recount"}, help: "Write opening balances, from which later recounts begin.",
		bind: func(v *values) pflag.Value { return boolValue{&v.opening} }},
	{name: "parallel", arg: "N", of: []string{"recount"}, help: "Ranges of the counters that are recounted at the same time, each by a call that reads the whole journal.",
		bind: func(v *values) pflag.Value {
			v.parallel = 1
			return countValue{to: &v.parallel, min: 1, max: 64}
		}},
	{name: "state", arg: "STATE", of: []string{"recount"}, def: "none", help: "File that remembers how far a recount is, so that the same command goes on.",
		bind: func(v *values) pflag.Value { return anyValue{&v.recountState} }},
}

var indexFlags = []flag{
	{name: "match", arg: "PATTERN", of: []string{"index create"}, def: "none; needed", help: "The counters of the index, such as 'page:{site}:*'.",
		bind: func(v *values) pflag.Value { return anyValue{&v.match} }},
	{name: "group", arg: "PATTERN", of: []string{"index create"}, def: "none; needed", help: "The group of a counter, such as 'site:{site}'.",
		bind: func(v *values) pflag.Value { return anyValue{&v.groupPattern} }},
	{name: "series", arg: "KEEP", of: []string{"index create"}, def: "none", help: "First add rules by which the counters and the groups keep series, such as 1m:6h,15m:400d. A rule that keeps something else is not changed: the command then does nothing.",
		bind: func(v *values) pflag.Value { return anyValue{&v.indexSeries} }},
	{name: "wait", of: []string{"index create", "index delete"}, help: "Show the progress, and end when the work is done.",
		bind: func(v *values) pflag.Value { return boolValue{&v.waits} }},
}

var restoreFlags = []flag{
	{name: "at", arg: "TIME", of: []string{"restore"}, def: "the newest",
		help: "Take the newest backup that was taken at TIME or before, as 2006-01-02T15:04:05Z. It has nothing that was accepted after TIME.",
		bind: func(v *values) pflag.Value { return momentValue{&v.before} }},
	{name: "database", arg: "ID", of: []string{"restore"}, def: "the only one",
		help: "Take a backup of this database. --list shows the ids. Needed if PLACE has backups of several databases.",
		bind: func(v *values) pflag.Value { return anyValue{&v.database} }},
	{name: "list", of: []string{"restore"}, help: "List the backups, the oldest first, and restore none.",
		bind: func(v *values) pflag.Value { return boolValue{&v.list} }},
}

var doctorFlags = []flag{
	examined("store", "The store of a role, as the role has it.", func(v *values) *string { return &v.roles.Store }),
	examined("bus", "The bus of a role, as the role has it.", func(v *values) *string { return &v.roles.Bus }),
	examined("cache", "The cache of a reader, as the reader has it.", func(v *values) *string { return &v.roles.Cache }),
}

func examined(name, help string, to func(*values) *string) flag {
	return flag{name: name, arg: "URL", of: []string{"doctor"}, env: true, def: "not examined", help: help,
		bind: func(v *values) pflag.Value { return anyValue{to(v)} }}
}

var deadFlags = []flag{
	{name: "limit", arg: "N", of: []string{"dead list"}, help: "Stop after N dead letters. 0: all.",
		bind: func(v *values) pflag.Value { return countValue{to: &v.limit, max: math.MaxInt32} }},
	{name: "all", of: []string{"dead replay", "dead discard"}, help: "All dead letters.",
		bind: func(v *values) pflag.Value { return boolValue{&v.all} }},
	{name: "as-new", of: []string{"dead replay"}, help: "Count dead letters as new whose ids are forgotten, lost or taken.",
		bind: func(v *values) pflag.Value { return boolValue{&v.asNew} }},
	{name: "yes", of: []string{"dead replay", "dead discard"}, help: "Do not ask. --all, --as-new and discard need it if no person can be asked.",
		bind: func(v *values) pflag.Value { return boolValue{&v.yes} }},
}

var tokenFlags = []flag{
	{name: "scope", arg: "SCOPES", of: []string{"token new"}, def: "none; needed",
		help: "Scopes of the token, one or more with commas between: publish (count), read (totals), metrics (/metrics), admin (change, copy and correct). None implies another.",
		bind: func(v *values) pflag.Value { return listValue{&v.scopes, true} }},
	{name: "prefix", arg: "PREFIX", of: []string{"token new"}, def: "all counters",
		help: "Only counters whose names begin with PREFIX; may be repeated. backup, dead, verify, rule and recount are about all counters and are refused then.",
		bind: func(v *values) pflag.Value { return listValue{&v.prefixes, false} }},
	{name: "expires", arg: "WHEN", of: []string{"token new", "share"}, def: "never; share: 30d",
		help: "A time such as 2027-01-02T15:04:05Z, or a duration from now, such as 720h or 90d.",
		bind: func(v *values) pflag.Value { return anyValue{&v.expires} }},
	perToken("increments-per-second", "Most increments that the token may count in a second in one process. countmill admits a request while no limit is reached, however large it is. It refuses later ones with 429 until that is made up for. 0: no limit.",
		func(v *values) *int64 { return &v.limits.Increments }),
	perToken("bytes-per-second", "Most bytes of requests' bodies in a second. 0: no limit.", func(v *values) *int64 { return &v.limits.Bytes }),
	perToken("new-counters-per-hour", "Most counters in an hour that the token has not named within the hour before. 0: no limit.", func(v *values) *int64 { return &v.limits.NewCounters }),
	{name: "file", arg: "FILE", of: []string{"token new", "share"}, def: "print the line",
		help: "Add the line to FILE, which is made if missing, and print the token or the link only.",
		bind: func(v *values) pflag.Value { return anyValue{&v.file} }},
	{name: "file", arg: "FILE", of: []string{"token list", "token remove"}, def: "none; needed",
		help: "The file of the server's --tokens.",
		bind: func(v *values) pflag.Value { return anyValue{&v.file} }},
	{name: "name", arg: "NAME", of: []string{"share"}, def: "share- and the prefix",
		help: "Name of the link's token, in the file and in logs.",
		bind: func(v *values) pflag.Value { return anyValue{&v.name} }},
	{name: "public", of: []string{"share"}, help: "Let everybody see badges of the counters under PREFIX, without a token.",
		bind: func(v *values) pflag.Value { return boolValue{&v.public} }},
	{name: "server", arg: "URL", of: []string{"share"}, env: true, help: "The address of the page in the link.",
		bind: func(v *values) pflag.Value {
			v.server = "http://" + app.DefaultListen
			return anyValue{&v.server}
		}},
}

func perToken(name, help string, to func(*values) *int64) flag {
	return flag{name: name, arg: "N", of: []string{"token new"}, help: help, bind: func(v *values) pflag.Value { return wholeValue{to(v)} }}
}

var outputFlags = []flag{
	asJSON("Write the report as JSON.", "doctor"),
	asJSON("Write one JSON array.", "config", "token list"),
	asJSON("Write one JSON object.", "version"),
}
