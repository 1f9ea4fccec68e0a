package command

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/store"
)

// role is a flag of the commands that run these roles.
func role(name, arg string, roles app.Roles, help string, bind func(*app.Config) pflag.Value) flag {
	of := []string{"up", "config"}
	for _, r := range []app.Roles{app.Publisher, app.Aggregator, app.Reader, app.Indexer} {
		if roles.Has(r) {
			of = append(of, r.String())
		}
	}
	return flag{name: name, arg: arg, of: of, env: true, help: help, bind: func(v *values) pflag.Value { return bind(&v.roles) }}
}

var roleFlags = []flag{
	role("listen", "HOST:PORT", app.Up,
		"Address to serve HTTP on. Port 0 picks a free port. An address that other machines reach needs --tokens or --insecure.",
		func(c *app.Config) pflag.Value { return textValue{to: &c.Listen} }),
	role("tokens", "FILE", app.Up,
		"File of the bearer tokens that may call, a line each as \"countmill token new\" prints it. none: anybody may call. countmill reads the file again when it changes. It keeps the old tokens if the new file has a mistake or if other users can write it; /readyz says so. A file without tokens admits nobody. Connections are not encrypted: put TLS in front.",
		func(c *app.Config) pflag.Value { return fileValue{&c.Tokens} }),
	role("insecure", "", app.Up,
		"Let anybody call who reaches --listen, from other machines too.",
		func(c *app.Config) pflag.Value { return boolValue{&c.Insecure} }),
	role("cors-origin", "ORIGIN", app.Up,
		"Origin of web pages whose scripts may call, such as https://example.com. Repeat the flag for several, or put commas between them in the variable. * allows all origins and needs --tokens or --insecure.",
		func(c *app.Config) pflag.Value { return originsValue{&c.CORSOrigins} }),
	role("data", "DIR", app.Aggregator|app.Reader,
		"Directory to keep the counters in; made if missing. Short for --store pebble:DIR.",
		func(c *app.Config) pflag.Value { return dirValue{&c.Store} }),
	role("backup-root", "PLACE", app.Aggregator|app.Reader,
		"Place below which backups of a pebble: store may be written: a directory, made if missing, or file:///DIR; with the program countmill-backup also gs://BUCKET[/PATH] and s3://BUCKET[/PATH]. Only this user should be able to write there. none: the server refuses backups.",
		func(c *app.Config) pflag.Value { return fileValue{&c.BackupRoot} }),
	role("backup-every", "DURATION", app.Aggregator|app.Reader,
		"Time between regular backups to --backup-root. A failed one is tried again within a minute. none: there are no regular backups.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.BackupEvery, min: time.Second, max: 30 * 24 * time.Hour, none: true}
		}),
	role("backup-keep", "DURATION", app.Aggregator|app.Reader,
		"How long backups in --backup-root are kept. The newest one stays. Backups in paths below it stay. none: all stay.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.BackupKeep, min: time.Second, max: 3660 * 24 * time.Hour, none: true}
		}),
	role("bus", "URL", app.Publisher|app.Aggregator,
		"How batches travel from publishers to aggregators: inproc: (within the process) or pubsub://PROJECT/TOPIC?subscription=NAME[&dead_letter=SUBSCRIPTION] (Google Pub/Sub). A publisher needs no subscription. Aggregators read dead_letter for messages that Pub/Sub could not deliver, and store them as dead letters.",
		func(c *app.Config) pflag.Value { return textValue{to: &c.Bus} }),
	role("store", "URL", app.Aggregator|app.Reader|app.Indexer,
		"Where counters are kept: pebble:DIR[?namespace=NS] (a directory of this machine) or datastore://PROJECT[/DATABASE][?namespace=NS] (Google's Firestore in Datastore mode).",
		func(c *app.Config) pflag.Value { return textValue{to: &c.Store} }),
	role("cache", "URL", app.Reader,
		"Where totals are kept for callers that accept older ones: memory:[?totals=N] (within the process) or memcached://HOST:PORT[,HOST:PORT...] (shared by readers).",
		func(c *app.Config) pflag.Value { return textValue{to: &c.Cache} }),
	role("create", "", app.Publisher|app.Aggregator,
		"Make the topic, the subscription and the database's meta record if they are missing. On an emulator countmill makes them without this flag.",
		func(c *app.Config) pflag.Value { return boolValue{&c.Create} }),
	role("shard-rate", "RATE", app.Aggregator,
		"How many commits a second one shard sustains. A counter gets more shards when its shards take more commits, or when commits conflict. off: counters get none by themselves. auto: 1 with datastore:, off with pebble:.",
		func(c *app.Config) pflag.Value { return rateValue{&c.Aggregator.ShardRate} }),
	role("dedup-window", "DURATION", app.Publisher|app.Aggregator,
		"The deduplication window: how long countmill remembers ids and Idempotency-Keys, those of resets too, and how old an increment's time may be. The database keeps it. An aggregator with another value writes that at its start; the last one to start wins. auto: the database's window, 192h in a new one. A publisher alone uses its own, 192h with auto.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.DedupWindow, min: store.MinWindow, max: store.MaxWindow, auto: true}
		}),
	role("journal-prefixes", "PATTERN", app.Publisher,
		"For a publisher alone, which cannot read the rules: the patterns of the rules for the journal, such as billing:*. It then does not sum increments of different tokens, and says whose they are. Where an aggregator is in the process, the database's rules count instead. Repeat the flag for several; the variable has one.",
		func(c *app.Config) pflag.Value { return rulesValue{&c.JournalPrefixes, store.CheckPattern} }),
	role("memory", "SIZE", app.Publisher|app.Aggregator,
		"Most memory for increments on their way: those that a publisher gathers while the bus is unavailable, and the messages that an aggregator holds. A publisher refuses more with 429, and an aggregator leaves more on the bus. The numbers of counters and messages that they hold are in proportion.",
		func(c *app.Config) pflag.Value { return sizeValue{to: &c.Memory, min: 16 << 20, max: 16 << 30} }),
	role("min-free", "SIZE", app.Aggregator,
		"Space to keep free on the disk of a pebble: store. Below it countmill refuses increments with 507, until an eighth more is free. Below half of it folding stops too. auto: the smaller of 1GiB and 5 % of the file system; nothing on a file system below 4GiB. 0: never refuse.",
		func(c *app.Config) pflag.Value {
			return sizeValue{to: &c.MinFree, min: 1 << 20, max: 1 << 50, auto: true}
		}),
	role("count-within", "DURATION", app.Publisher|app.Aggregator,
		"How old an increment may be at its commit. Batches and windows then wait as long as this allows, which writes least. Give all publishers and aggregators the same value, and set their clocks. none: batches wait 250ms and windows 100ms, and nothing with inproc:.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.CountWithin, min: app.MinCountWithin, max: app.MaxCountWithin, none: true}
		}),
	role("max-staleness", "DURATION", app.Reader,
		"How old a total may be if the caller does not say. 0s always reads the store. auto: 0s with pebble:, else 2s.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Reader.DefaultStaleness, max: time.Hour, auto: true}
		}),
	role("index-rate", "N", app.Indexer,
		"Most shards that a worker reads in a second to build or delete an index.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Indexer.Rate, min: 1, max: 100_000_000}
		}),
	role("index-recheck", "DURATION", app.Indexer,
		"How old the last reading of an index may be. Then workers read its shards again, and correct groups that lack increments.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Indexer.Recheck, min: time.Minute, max: 3660 * 24 * time.Hour}
		}),
	role("board-rate", "N", app.Reader,
		"How many entities a second a scan for leaderboards reads from datastore:, which charges for each. It must read an index within 55 minutes. 0: no leaderboards there. pebble: needs no rate.",
		func(c *app.Config) pflag.Value { return countValue{to: &c.Reader.BoardRate, max: 1_000_000} }),
	role("request-timeout", "DURATION", app.Up,
		"How long a request may take before countmill answers with an error. A request for increments is refused with 429 if it would wait longer than a quarter of this for its turn.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.RequestTimeout, min: 100 * time.Millisecond, max: 10 * time.Minute}
		}),
	role("shutdown-timeout", "DURATION", app.Up,
		"How long the process may take between the signal to stop and its end. Keep it below the time after which the supervisor kills.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.ShutdownTimeout, min: time.Second, max: 10 * time.Minute}
		}),
	role("pprof", "HOST:PORT", app.Up,
		"Address of this machine to serve profiles on, for example 127.0.0.1:6060. They need no token, and http://HOST:PORT/debug/pprof/heap is one for \"go tool pprof\". none: no profiles.",
		func(c *app.Config) pflag.Value { return fileValue{&c.Pprof} }),
	role("log-level", "LEVEL", app.Up,
		"Least level to log: debug, info, warn or error.",
		func(c *app.Config) pflag.Value {
			return textValue{to: &c.LogLevel, of: []string{"debug", "info", "warn", "error"}}
		}),
	role("log-format", "FORMAT", app.Up,
		"Format of the log on standard error: text or json.",
		func(c *app.Config) pflag.Value { return textValue{to: &c.LogFormat, of: []string{"text", "json"}} }),
}
