package app

import (
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
)

// An option is a flag and its variable.
type option struct {
	name  string
	arg   string // how help writes the value
	roles Roles  // the roles that have it
	help  string
	bind  func(c *Config) pflag.Value
}

// Env is the variable of a flag. Kubernetes sets variables like COUNTMILL_PORT and
// COUNTMILL_SERVICE_HOST for a service named countmill: no flag may be called so.
func Env(flag string) string {
	return "COUNTMILL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// options is every flag of every role, in the order of the help.
var options = []option{
	{"listen", "HOST:PORT", Up,
		"Address to serve HTTP on. Port 0 picks a free port. Beyond this machine (loopback) it needs --tokens or --insecure.",
		func(c *Config) pflag.Value { return textValue{to: &c.Listen} }},
	{"tokens", "FILE", Up,
		"Who may call: a file of bearer tokens, one line each as \"countmill token new\" prints it; none: anybody. It is read again when it changes; one with a mistake, and one that others than its owner can write, changes nothing, and /readyz says so. One without tokens lets nobody in. Connections are not encrypted: put TLS in front.",
		func(c *Config) pflag.Value { return fileValue{&c.Tokens} }},
	{"insecure", "", Up,
		"Let anybody who reaches --listen call, from other machines too.",
		func(c *Config) pflag.Value { return boolValue{&c.Insecure} }},
	{"cors-origin", "ORIGIN", Up,
		"Web pages whose scripts may call, such as https://example.com; may stand several times, with commas between in the variable. * is all of them, which needs --tokens or --insecure.",
		func(c *Config) pflag.Value { return originsValue{&c.CORSOrigins} }},
	{"data", "DIR", Aggregator | Reader,
		"Directory to keep the counters in; made if missing. Short for --store pebble:DIR.",
		func(c *Config) pflag.Value { return dirValue{&c.Store} }},
	{"backup-root", "DIR", Aggregator | Reader,
		"Directory of this machine below which \"countmill backup\" may copy the counters of a pebble: store. Nobody but this user should be able to write there. none: backups are refused.",
		func(c *Config) pflag.Value { return fileValue{&c.BackupRoot} }},
	{"bus", "URL", Publisher | Aggregator,
		"Where batches travel from publishers to aggregators: inproc: (within the process) or pubsub://PROJECT/TOPIC?subscription=NAME[&dead_letter=SUBSCRIPTION] (Google Pub/Sub; a publisher needs no subscription; from dead_letter aggregators take what Pub/Sub gives up delivering, as dead letters).",
		func(c *Config) pflag.Value { return textValue{to: &c.Bus} }},
	{"store", "URL", Aggregator | Reader,
		"Where counters are kept: pebble:DIR[?namespace=NS] (a directory of this machine) or datastore://PROJECT[/DATABASE][?namespace=NS] (Google's Firestore in Datastore mode).",
		func(c *Config) pflag.Value { return textValue{to: &c.Store} }},
	{"cache", "URL", Reader,
		"Where totals are kept for callers that accept older ones: memory:[?totals=N] (within the process) or memcached://HOST:PORT[,HOST:PORT...] (shared by readers).",
		func(c *Config) pflag.Value { return textValue{to: &c.Cache} }},
	{"create", "", Publisher | Aggregator,
		"Make the topic, the subscription and the database's meta record where they are missing. Against an emulator they are made without it.",
		func(c *Config) pflag.Value { return boolValue{&c.Create} }},
	{"shards", "N", Aggregator,
		"Number of shards of a counter that is counted for the first time. More shards take more commits a second and make totals dearer. auto: what suits the store, which is 1; with datastore: counters get more by themselves when they need them.",
		func(c *Config) pflag.Value {
			return countValue{to: &c.Shards, min: 1, max: countmill.MaxShards, auto: true}
		}},
	{"max-shards", "N", Aggregator,
		"Most shards that a counter gets by itself. One that was given more keeps them.",
		func(c *Config) pflag.Value { return countValue{to: &c.MaxShards, min: 1, max: countmill.MaxShards} }},
	{"shard-rate", "RATE", Aggregator,
		"How many commits a second one shard sustains: a counter gets more shards when they take more, or stand in each other's way. off: none gets more by itself. auto: what suits the store; 1 with datastore:, off with pebble:.",
		func(c *Config) pflag.Value { return rateValue{&c.ShardRate} }},
	{"dedup-window", "DURATION", Publisher | Aggregator,
		"The deduplication window: how long ids, those of resets too, and Idempotency-Keys are remembered, and how old an increment's time may be. It is kept in the database, and an aggregator that is given another one sets it there at its start; of several the last one wins. auto: what the database has, 192h in a new one. A publisher alone goes by its own, 192h with auto.",
		func(c *Config) pflag.Value {
			return durationValue{to: &c.DedupWindow, min: store.MinWindow, max: store.MaxWindow, auto: true}
		}},
	{"linger", "DURATION", Publisher,
		"How long a publisher's batch waits for more increments. Longer is cheaper and later. auto: 0s with inproc:, else 250ms.",
		func(c *Config) pflag.Value { return durationValue{to: &c.Linger, max: time.Minute, auto: true} }},
	{"open-entries", "N", Publisher,
		"Most distinct counters that a publisher gathers while the bus is away; more are refused with 429.",
		func(c *Config) pflag.Value { return countValue{to: &c.OpenEntries, min: 1000, max: math.MaxInt32} }},
	{"open-bytes", "SIZE", Publisher,
		"Most memory that a publisher's gathered increments may take; more are refused with 429.",
		func(c *Config) pflag.Value { return sizeValue{to: &c.OpenBytes, min: 1 << 20, max: 16 << 30} }},
	{"min-free", "SIZE", Aggregator,
		"Space that stays free on the disk of a pebble: store. With less of it increments are refused with 507, until there is an eighth more; everything else goes on. auto: the smaller of 1GiB and 5 % of the file system, and nothing where that is below 4GiB. 0: never refuse.",
		func(c *Config) pflag.Value { return sizeValue{to: &c.MinFree, min: 1 << 20, max: 1 << 50, auto: true} }},
	{"window-linger", "DURATION", Aggregator,
		"How long an aggregator's window waits for more messages. auto: 0s with inproc:, else 100ms.",
		func(c *Config) pflag.Value { return durationValue{to: &c.WindowLinger, max: time.Minute, auto: true} }},
	{"count-within", "DURATION", Publisher | Aggregator,
		"How old an increment may be when it is counted. Batches and windows then wait for as long as that lets them, which writes least. The same for all publishers and aggregators, whose clocks have to be set. none: --linger and --window-linger decide; given beside it, they win.",
		func(c *Config) pflag.Value {
			return durationValue{to: &c.CountWithin, min: aggregator.MinCountWithin, max: aggregator.MaxCountWithin, none: true}
		}},
	{"window-messages", "N", Aggregator,
		"A window closes at this many messages.",
		func(c *Config) pflag.Value { return countValue{to: &c.WindowMessages, min: 1, max: 1_000_000} }},
	{"window-counters", "N", Aggregator,
		"A window closes at this many distinct counters.",
		func(c *Config) pflag.Value { return countValue{to: &c.WindowCounters, min: 1, max: 10_000_000} }},
	{"window-memory", "SIZE", Aggregator,
		"A window closes when its messages take this much memory, as estimated. An aggregator holds four times that at most.",
		func(c *Config) pflag.Value { return sizeValue{to: &c.WindowMemory, min: 64 << 10, max: 4 << 30} }},
	{"commits", "N", Aggregator,
		"How many commits may be under way at once. auto: what the store gains from.",
		func(c *Config) pflag.Value { return countValue{to: &c.Commits, min: 1, max: 1024, auto: true} }},
	{"commit-timeout", "DURATION", Aggregator,
		"How long an aggregator waits for one answer of the store.",
		func(c *Config) pflag.Value {
			return durationValue{to: &c.CommitTimeout, min: 100 * time.Millisecond, max: 10 * time.Minute}
		}},
	{"dead-letter-rate", "N", Aggregator,
		"Most dead letters written in a second. The rest is held: stuck is loud, full is silent.",
		func(c *Config) pflag.Value { return countValue{to: &c.DeadLetterRate, min: 1, max: 100_000} }},
	{"worker-id", "NAME", Aggregator,
		"Name of this aggregator among others. auto: random.",
		func(c *Config) pflag.Value { return autoTextValue{&c.WorkerID} }},
	{"max-staleness", "DURATION", Reader,
		"How old a total may be when the caller does not say. 0s always reads the store. auto: 0s with pebble:, else 2s.",
		func(c *Config) pflag.Value { return durationValue{to: &c.MaxStaleness, max: time.Hour, auto: true} }},
	{"connections", "N", Up,
		"Most HTTP connections open at once. One more closes the one that has waited longest for a request, or waits where there is none. auto: 10000, fewer where the system allows fewer open files.",
		func(c *Config) pflag.Value { return countValue{to: &c.Connections, min: 1, max: 1_000_000, auto: true} }},
	{"request-timeout", "DURATION", Up,
		"How long a request may take before it is answered with an error. A request for increments that would wait for its turn for a quarter of it, by what was taken lately, is refused with 429.",
		func(c *Config) pflag.Value {
			return durationValue{to: &c.RequestTimeout, min: 100 * time.Millisecond, max: 10 * time.Minute}
		}},
	{"shutdown-timeout", "DURATION", Up,
		"How long everything may take between the signal to stop and the end. Keep it below what the supervisor waits before it kills.",
		func(c *Config) pflag.Value {
			return durationValue{to: &c.ShutdownTimeout, min: time.Second, max: 10 * time.Minute}
		}},
	{"log-level", "LEVEL", Up,
		"What to log: debug, info, warn or error.",
		func(c *Config) pflag.Value {
			return textValue{to: &c.LogLevel, of: []string{"debug", "info", "warn", "error"}}
		}},
	{"log-format", "FORMAT", Up,
		"How to log to standard error: text or json.",
		func(c *Config) pflag.Value { return textValue{to: &c.LogFormat, of: []string{"text", "json"}} }},
}

// optionsOf is the flags that at least one of the roles has.
func optionsOf(roles Roles) []option {
	var of []option
	for _, o := range options {
		if o.roles.Has(roles) {
			of = append(of, o)
		}
	}
	return of
}
