package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"strings"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/systemd"
	"github.com/countmill/countmill/store"
)

var upCommand = cli.Command{
	Path:  "up",
	Group: "run",
	Short: "run everything in one process",
	Long: `Runs publisher, aggregator and reader in one process and serves HTTP. Without flags
it needs nothing else: counters are kept in ./countmill-data.

  countmill up
  countmill up --listen 127.0.0.1:9000 --data /var/lib/countmill

Ctrl-C or SIGTERM stops it: it takes no more increments, finishes accepted work,
and ends within --shutdown-timeout. While it starts, and has accepted nothing, it ends
within 2 s. A second signal ends it at once. Accepted increments are safe in every case, also
after SIGKILL.

/openapi.json describes the API.
`,
	New: func() cli.Verb { return newRoles(app.Up) },
}

var publisherCommand = cli.Command{
	Path:  "publisher",
	Group: "run",
	Short: "run only a publisher: takes increments, sends batches",
	Long: `Takes increments over HTTP, coalesces them and sends them as batches over a bus that
reaches other processes. On one machine use "countmill up" instead.
`,
	New: func() cli.Verb { return newRoles(app.Publisher) },
}

var aggregatorCommand = cli.Command{
	Path:  "aggregator",
	Group: "run",
	Short: "run only an aggregator: folds batches into the store",
	Long: `Takes batches from a bus and folds each exactly once into a store. Other processes have to
reach both. On one machine use "countmill up" instead.
`,
	New: func() cli.Verb { return newRoles(app.Aggregator) },
}

var readerCommand = cli.Command{
	Path:  "reader",
	Group: "run",
	Short: "run only a reader: serves totals",
	Long: `Serves totals over HTTP from a store that other processes write. On one machine use
"countmill up" instead.
`,
	New: func() cli.Verb { return newRoles(app.Reader) },
}

// A rolesVerb runs roles.
type rolesVerb struct {
	call
	cfg app.Config
}

func newRoles(roles app.Roles) *rolesVerb { return &rolesVerb{cfg: app.Defaults(roles)} }

func (c *rolesVerb) Flags() []cli.Flag { return roleFlags(&c.cfg) }

// Run runs the roles until ctx ends or one of them fails.
func (c *rolesVerb) Run(ctx context.Context) error {
	cfg := c.cfg
	cfg.Stores, cfg.Buses, cfg.Buckets, cfg.Profiles = c.stores, c.buses, c.buckets, http.DefaultServeMux
	cfg.Logger = app.NewLogger(cfg, c.stderr)
	if unknown := UnknownEnv(c.environ); len(unknown) > 0 {
		cfg.Logger.Warn("variables that no flag has are ignored", "names", strings.Join(unknown, " "))
	}
	if token, _ := c.lookup("COUNTMILL_TOKEN"); token != "" && cfg.Tokens == "" {
		cfg.Logger.Warn("COUNTMILL_TOKEN is ignored here: clients send that token; a server takes the tokens of a file, COUNTMILL_TOKENS or --tokens")
	}
	var err error
	if cfg.Supervisor, err = systemd.FromEnv(c.lookup); err != nil {
		return cli.Usagef("%s", err)
	}
	a, err := app.Start(ctx, cfg)
	if errors.Is(err, app.ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "countmill %s listens on http://%s%s\n", cfg.Roles, a.Addr(), a.Kept())
	defer runtime.KeepAlive(ballast(c.lookup))
	return a.Run(ctx)
}

// dirValue writes a directory into the URL of the store.
type dirValue struct{ store *string }

func (v dirValue) Type() string   { return "dir" }
func (v dirValue) String() string { return "countmill-data" }

func (v dirValue) Set(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	*v.store = app.PebbleURL(s)
	return nil
}

const minShardRate, maxShardRate = 0.1, 1000.0

// roleFlags are those of the roles of a configuration, which has the defaults. Variables set them too.
func roleFlags(c *app.Config) (flags []cli.Flag) {
	add := func(roles app.Roles, f cli.Flag) {
		if roles&c.Roles != 0 {
			flags = append(flags, f.FromEnv().In(rolesSection))
		}
	}
	addWhole := func(f cli.Flag) { // about a store of one process, which a single role refuses
		if c.Roles == app.Up {
			add(app.Up, f)
		}
	}
	add(app.Up, cli.New("listen", "HOST:PORT", cli.Text{To: &c.Listen}, "Address to serve HTTP on. Port 0 picks a free port. An address that other machines reach needs --tokens or --insecure."))
	add(app.Up, cli.New("tokens", "FILE", cli.File(&c.Tokens),
		"File of the bearer tokens that may call, a line each as \"countmill token new\" prints it. none: anybody may call. countmill reads the file again when it changes. It keeps the old tokens if the new file has a mistake or if other users can write it; /readyz says so. A file without tokens admits nobody. Connections are not encrypted: put TLS in front."))
	add(app.Up, cli.Switch("insecure", &c.Insecure, "Let anybody call who reaches --listen, from other machines too."))
	add(app.Up, cli.New("cors-origin", "ORIGIN", cli.List{To: &c.CORSOrigins, Split: true, Check: httpserver.CheckOrigin, Empty: "none"},
		"Origin of web pages whose scripts may call, such as https://example.com. Repeat the flag for several, or put commas between them in the variable. * allows all origins and needs --tokens or --insecure."))
	addWhole(cli.New("data", "DIR", dirValue{&c.Store}, "Directory to keep the counters in; made if missing. Short for --store pebble:DIR.").Instead("store", "--data DIR is short for --store pebble:DIR"))
	addWhole(cli.New("backup-root", "PLACE", cli.File(&c.BackupRoot),
		"Place below which backups of a pebble: store may be written: a directory, made if missing, or file:///DIR; with the program countmill-backup also gs://BUCKET[/PATH] and s3://BUCKET[/PATH]. Only this user should be able to write there. none: the server refuses backups."))
	addWhole(cli.New("backup-every", "DURATION", cli.Duration{To: &c.BackupEvery, Min: time.Second, Max: 30 * 24 * time.Hour, None: true},
		"Time between regular backups to --backup-root. A failed one is tried again within a minute. none: there are no regular backups."))
	addWhole(cli.New("backup-keep", "DURATION", cli.Duration{To: &c.BackupKeep, Min: time.Second, Max: 3660 * 24 * time.Hour, None: true},
		"How long backups in --backup-root are kept. The newest one stays. Backups in paths below it stay. none: all stay."))
	add(app.Publisher|app.Aggregator, cli.New("bus", "URL", cli.Text{To: &c.Bus},
		"How batches travel from publishers to aggregators: inproc: (within the process), nats://HOST:PORT[,HOST:PORT...]/STREAM[?consumer=NAME&credentials=FILE&ca=FILE&replicas=N] (NATS JetStream), or pubsub://PROJECT/TOPIC?subscription=NAME[&dead_letter=SUBSCRIPTION] (Google Pub/Sub). A publisher needs no subscription. Aggregators read dead_letter for messages that Pub/Sub could not deliver, and store them as dead letters. With --create the replicas= are those of a new stream."))
	add(app.Aggregator|app.Reader|app.Indexer, cli.New("store", "URL", cli.Text{To: &c.Store},
		"Where counters are kept: pebble:DIR[?namespace=NS] (a directory of this machine), postgres://[USER@]HOST[:PORT]/DATABASE[?schema=NAME] (a schema of PostgreSQL, and parameters of libpq such as sslmode, or host for a socket) or datastore://PROJECT[/DATABASE][?namespace=NS] (Google's Firestore in Datastore mode)."))
	add(app.Reader, cli.New("cache", "URL", cli.Text{To: &c.Cache}, "Where totals are kept for callers that accept older ones: memory:[?totals=N] (within the process) or memcached://HOST:PORT[,HOST:PORT...] (shared by readers)."))
	add(app.Publisher|app.Aggregator, cli.Switch("create", &c.Create, "Make the topic, the subscription, the stream of NATS, the schema of PostgreSQL and the database's meta record if they are missing. On an emulator countmill makes them without this flag."))
	add(app.Aggregator, cli.New("shard-rate", "RATE", cli.Rate{To: &c.Aggregator.ShardRate, Min: minShardRate, Max: maxShardRate},
		"How many commits a second one shard sustains. A counter gets more shards when its shards take more commits, or when commits conflict. off: counters get none by themselves. auto: 1 with datastore:, else off."))
	add(app.Publisher|app.Aggregator, cli.New("dedup-window", "DURATION", cli.Duration{To: &c.DedupWindow, Min: store.MinWindow, Max: store.MaxWindow, Auto: true},
		"The deduplication window: how long countmill remembers ids and Idempotency-Keys, those of resets too, and how old an increment's time may be. The database keeps it. An aggregator with another value writes that at its start; the last one to start wins. auto: the database's window, 192h in a new one. A publisher alone uses its own, 192h with auto."))
	add(app.Publisher, cli.New("journal-prefixes", "PATTERN", cli.List{To: &c.JournalPrefixes, Check: store.CheckPattern, Empty: "none"},
		"For a publisher alone, which cannot read the rules: the patterns of the rules for the journal, such as billing:*. It then does not sum increments of different tokens, and says whose they are. Where an aggregator is in the process, the database's rules count instead. Repeat the flag for several; the variable has one."))
	add(app.Publisher|app.Aggregator, cli.New("memory", "SIZE", cli.Size{To: &c.Memory, Min: 16 << 20, Max: 16 << 30},
		"Most memory for increments on their way: those that a publisher gathers while the bus is unavailable, and the messages that an aggregator holds. A publisher refuses more with 429, and an aggregator leaves more on the bus. The numbers of counters and messages that they hold are in proportion."))
	addWhole(cli.New("min-free", "SIZE", cli.Size{To: &c.MinFree, Min: 1 << 20, Max: 1 << 50, Auto: true},
		"Space to keep free on the disk of a pebble: store. Below it countmill refuses increments with 507, until an eighth more is free. Below half of it folding stops too. auto: the smaller of 1GiB and 5 % of the file system; nothing on a file system below 4GiB. 0: never refuse."))
	add(app.Publisher|app.Aggregator, cli.New("count-within", "DURATION", cli.Duration{To: &c.CountWithin, Min: app.MinCountWithin, Max: app.MaxCountWithin, None: true},
		"How old an increment may be at its commit. Batches and windows then wait as long as this allows, which writes least. Give all publishers and aggregators the same value, and set their clocks. none: batches wait 250ms and windows 100ms, and nothing with inproc:."))
	add(app.Reader, cli.New("max-staleness", "DURATION", cli.Duration{To: &c.Reader.DefaultStaleness, Max: time.Hour, Auto: true},
		"How old a total may be if the caller does not say. 0s always reads the store. auto: 2s with datastore:, else 0s."))
	add(app.Indexer, cli.New("index-rate", "N", cli.Count{To: &c.Indexer.Rate, Min: 1, Max: 100_000_000}, "Most shards that a worker reads in a second to build or delete an index."))
	add(app.Reader, cli.New("board-rate", "N", cli.Count{To: &c.Reader.BoardRate, Max: 1_000_000},
		"How many entities a second a scan for leaderboards reads from datastore:, which charges for each. It must read an index within 55 minutes. 0: no leaderboards there. Other stores need no rate."))
	add(app.Up, cli.New("request-timeout", "DURATION", cli.Duration{To: &c.RequestTimeout, Min: 100 * time.Millisecond, Max: 10 * time.Minute},
		"How long a request may take before countmill answers with an error. A request for increments is refused with 429 if it would wait longer than a quarter of this for its turn."))
	add(app.Up, cli.New("shutdown-timeout", "DURATION", cli.Duration{To: &c.ShutdownTimeout, Min: time.Second, Max: 10 * time.Minute},
		"How long the process may take between the signal to stop and its end. Keep it below the time after which the supervisor kills."))
	add(app.Up, cli.New("pprof", "HOST:PORT", cli.File(&c.Pprof),
		"Address of this machine to serve profiles on, for example 127.0.0.1:6060. They need no token, and http://HOST:PORT/debug/pprof/heap is one for \"go tool pprof\". none: no profiles."))
	add(app.Up, cli.New("log-level", "LEVEL", cli.Text{To: &c.LogLevel, Of: []string{"debug", "info", "warn", "error"}}, "Least level to log: debug, info, warn or error."))
	add(app.Up, cli.New("log-format", "FORMAT", cli.Text{To: &c.LogFormat, Of: []string{"text", "json"}}, "Format of the log on standard error: text or json."))
	return flags
}
