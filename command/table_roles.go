package command

import (
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill"
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
	role("backup-rate", "SIZE", app.Aggregator|app.Reader,
		"Most bytes that backups read from the disk in a second. A backup reads each new table twice, and after a start each table once.",
		func(c *app.Config) pflag.Value { return sizeValue{to: &c.BackupRate, min: 1 << 20, max: 1 << 50} }),
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
	role("shards", "N", app.Aggregator,
		"Number of shards of a new counter. More shards take more commits a second and make totals dearer. auto: 1. With datastore: counters get more shards when they need them.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Aggregator.Shards, min: 1, max: countmill.MaxShards, auto: true}
		}),
	role("max-shards", "N", app.Aggregator,
		"Most shards that a counter gets by itself. A counter that \"countmill grow\" gave more keeps them.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Aggregator.MaxShards, min: 1, max: countmill.MaxShards}
		}),
	role("shard-rate", "RATE", app.Aggregator,
		"How many commits a second one shard sustains. A counter gets more shards when its shards take more commits, or when commits conflict. off: counters get none by themselves. auto: 1 with datastore:, off with pebble:.",
		func(c *app.Config) pflag.Value { return rateValue{&c.Aggregator.ShardRate} }),
	role("dedup-window", "DURATION", app.Publisher|app.Aggregator,
		"The deduplication window: how long countmill remembers ids and Idempotency-Keys, those of resets too, and how old an increment's time may be. The database keeps it. An aggregator with another value writes that at its start; the last one to start wins. auto: the database's window, 192h in a new one. A publisher alone uses its own, 192h with auto.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.DedupWindow, min: store.MinWindow, max: store.MaxWindow, auto: true}
		}),
	role("series", "RULE", app.Aggregator,
		"A rule for series, as PATTERN=KEEP: the counters of PATTERN keep sums over time. page:*=1m:6h,15m:400d keeps minutes for 6 hours and quarter hours for 400 days. The database keeps the rule; \"countmill rule remove\" ends it. Repeat the flag for several; the variable has one.",
		func(c *app.Config) pflag.Value { return rulesValue{&c.Series, checkSeries} }),
	role("journal", "RULE", app.Aggregator,
		"A rule for the journal, as PATTERN=KEEP: each increment of the counters of PATTERN stays as evidence. billing:*=400d keeps it for 400 days; billing:*=400d,paged also keeps it under its counter, for fast pages. The database keeps the rule; \"countmill rule remove\" ends it. Repeat the flag for several; the variable has one.",
		func(c *app.Config) pflag.Value { return rulesValue{&c.Journal, checkJournal} }),
	role("journal-prefixes", "PATTERN", app.Publisher,
		"For a publisher alone, which cannot read the rules: the patterns of the rules for the journal, such as billing:*. It then does not sum increments of different tokens, and says whose they are. Where an aggregator is in the process, the database's rules count instead. Repeat the flag for several; the variable has one.",
		func(c *app.Config) pflag.Value { return rulesValue{&c.JournalPrefixes, store.CheckPattern} }),
	role("linger", "DURATION", app.Publisher,
		"How long a publisher's batch waits for more increments. Longer is cheaper and later. auto: 0s with inproc:, else 250ms.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Publisher.Linger, max: time.Minute, auto: true}
		}),
	role("open-entries", "N", app.Publisher,
		"Most distinct counters that a publisher gathers while the bus is unavailable. It refuses more with 429.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Publisher.MaxEntries, min: 1000, max: math.MaxInt32}
		}),
	role("open-bytes", "SIZE", app.Publisher,
		"Most memory for the increments that a publisher gathers. It refuses more with 429.",
		func(c *app.Config) pflag.Value {
			return sizeValue{to: &c.Publisher.MaxBytes, min: 1 << 20, max: 16 << 30}
		}),
	role("min-free", "SIZE", app.Aggregator,
		"Space to keep free on the disk of a pebble: store. Below it countmill refuses increments with 507, until an eighth more is free. Below half of it folding stops too. auto: the smaller of 1GiB and 5 % of the file system; nothing on a file system below 4GiB. 0: never refuse.",
		func(c *app.Config) pflag.Value {
			return sizeValue{to: &c.MinFree, min: 1 << 20, max: 1 << 50, auto: true}
		}),
	role("window-linger", "DURATION", app.Aggregator,
		"How long an aggregator's window waits for more messages. auto: 0s with inproc:, else 100ms.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Aggregator.Linger, max: time.Minute, auto: true}
		}),
	role("count-within", "DURATION", app.Publisher|app.Aggregator,
		"How old an increment may be at its commit. Batches and windows then wait as long as this allows, which writes least. Give all publishers and aggregators the same value, and set their clocks. none: --linger and --window-linger decide. A linger given beside it wins.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.CountWithin, min: app.MinCountWithin, max: app.MaxCountWithin, none: true}
		}),
	role("window-messages", "N", app.Aggregator,
		"A window closes at this many messages.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Aggregator.WindowMessages, min: 1, max: 1_000_000}
		}),
	role("window-counters", "N", app.Aggregator,
		"A window closes at this many distinct counters.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Aggregator.WindowCounters, min: 1, max: 10_000_000}
		}),
	role("window-memory", "SIZE", app.Aggregator,
		"A window closes when its messages take this much memory, as estimated. An aggregator holds at most four times as much.",
		func(c *app.Config) pflag.Value {
			return sizeValue{to: &c.Aggregator.WindowMemory, min: 64 << 10, max: 4 << 30}
		}),
	role("commits", "N", app.Aggregator,
		"Most commits under way at once. auto: as many as make the store faster.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Aggregator.Commits, min: 1, max: 1024, auto: true}
		}),
	role("commit-timeout", "DURATION", app.Aggregator,
		"How long an aggregator waits for one answer of the store.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Aggregator.CommitTimeout, min: 100 * time.Millisecond, max: 10 * time.Minute}
		}),
	role("dead-letter-rate", "N", app.Aggregator,
		"Most dead letters written in a second. An aggregator holds the rest, and /readyz reports it: a mistake shows before it fills the store.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Aggregator.DeadLetterRate, min: 1, max: 100_000}
		}),
	role("worker-id", "NAME", app.Aggregator,
		"Name of this aggregator among others. auto: random.",
		func(c *app.Config) pflag.Value { return autoTextValue{&c.Aggregator.WorkerID} }),
	role("max-staleness", "DURATION", app.Reader,
		"How old a total may be if the caller does not say. 0s always reads the store. auto: 0s with pebble:, else 2s.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Reader.DefaultStaleness, max: time.Hour, auto: true}
		}),
	role("index-lease", "DURATION", app.Indexer,
		"How long other workers leave a range of an index to a worker that does not answer. A worker makes its lease longer as it works.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Indexer.Lease, min: 5 * time.Second, max: time.Hour}
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
	role("index-timeout", "DURATION", app.Indexer,
		"How long a worker waits for one answer of the store.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Indexer.CallTimeout, min: 100 * time.Millisecond, max: 10 * time.Minute}
		}),
	role("board-age", "DURATION", app.Reader,
		"How old a leaderboard may be before the next one is made. It is made only if somebody asks for it and something was counted. If nobody has asked for twice this time, and the last one was made within 2s, an answer waits for the next one.",
		func(c *app.Config) pflag.Value {
			return durationValue{to: &c.Reader.BoardAge, min: time.Second, max: 24 * time.Hour}
		}),
	role("board-rate", "N", app.Reader,
		"How many entities a second a scan for leaderboards reads from datastore:, which charges for each. It must read an index within 55 minutes. 0: no leaderboards there. pebble: needs no rate.",
		func(c *app.Config) pflag.Value { return countValue{to: &c.Reader.BoardRate, max: 1_000_000} }),
	role("connections", "N", app.Up,
		"Most HTTP connections open at once. Three quarters are for callers that were let in: those that have shown a valid token or, without --tokens, any caller. A token leaves a ninth of them to others. At the limit a new connection replaces one that has not been let in, so /healthz always has room. A caller replaces the caller's connection that has waited longest for its client; if all have requests under way, it gets 429. auto: 10000, or fewer if the system allows fewer open files.",
		func(c *app.Config) pflag.Value {
			return countValue{to: &c.Connections, min: 2, max: 1_000_000, auto: true}
		}),
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
