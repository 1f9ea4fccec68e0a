package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/fair"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Services are the things that routes call. A route whose service is nil answers 404 and names
// the role that has the route.
type Services struct {
	Sender        Sender             // of role publisher
	BatchReceiver BatchReceiver      // of role publisher
	Reader        Reader             // of role reader
	Admin         Admin              // of role reader
	DeadLetters   *admin.DeadLetters // of roles reader and aggregator
	Verifier      *admin.Verifier    // of roles reader and aggregator
	Sequences     Sequences          // of roles reader and aggregator
	Journal       *admin.Journal     // of roles reader and aggregator
	Recounter     Recounter          // of roles reader and aggregator

	// Folded means that increments are in the totals of Reader when Sender returns nil.
	Folded bool

	// Ready returns why the process cannot do its work. degraded names a part that is missing,
	// if the process works without it. Nil: it is always ready.
	Ready func(ctx context.Context) (degraded string, err error)

	// Backup copies the store to a place below its backup root; "" is the root. Nil: the store cannot
	// be copied.
	Backup func(ctx context.Context, to string) (client.Backup, error)

	// LastBackup is the moment until which the newest known backup of the root has everything; zero if none is
	// known. Nil: there are no backups.
	LastBackup func() time.Time
	// BackupEvery is the time between two regular backups. 0: there are none.
	BackupEvery time.Duration

	// Restored is when the store last may have lost its end; zero for never. Nil: it does not know.
	Restored func() time.Time

	// Unbalanced is the number of rules for the journal that lack opening balances; false if this process has not looked. Nil: it
	// never looks.
	Unbalanced func() (rules int, known bool)

	// Disk is the space of the store. Nil: it is on no disk of this machine.
	Disk func() client.DiskSpace

	// Moment returns a moment of the store: views of it or of a later one show every fold that returned
	// before the call. Nil: a moment costs a read.
	Moment func() time.Time

	// Unseen is the age of the oldest message on the bus that no aggregator has taken. Nil: the bus
	// cannot say.
	Unseen func() time.Duration

	// Public reports whether everybody may see the badge of a counter. Nil: everybody may, because
	// everybody may call.
	Public func(counter string) bool

	// Metrics are those of the process. Nil: there are none.
	Metrics http.Handler
}

// A Reader gives totals. *reader.Reader is one; its methods have the promises.
type Reader interface {
	TotalsSince(ctx context.Context, counters []string, maxStaleness time.Duration, minAsOf time.Time) ([]reader.Total, error)
	TotalsAfter(ctx context.Context, counters []string, receipt wire.Receipt, wait time.Duration, minAsOf time.Time) (reader.After, error)
	ListSince(ctx context.Context, prefix, after string, limit int, minAsOf time.Time) (reader.Page, error)
	Series(ctx context.Context, q reader.SeriesQuery) (reader.Series, error)
	Top(ctx context.Context, q reader.TopQuery) (reader.Top, error)
	Rank(ctx context.Context, q reader.BoardQuery, counter string) (reader.Rank, error)
	Pipeline(ctx context.Context) reader.Pipeline
	Busiest(ctx context.Context) []store.Busy
	Fleet(ctx context.Context) []store.Worker
}

// An Admin looks after counters. *admin.Admin is one; its methods have the promises.
type Admin interface {
	Grow(ctx context.Context, counter string, shards int) error
	Reset(ctx context.Context, counter, id string) (admin.Done, error)
	Delete(ctx context.Context, counter string) (admin.Done, error)
	Rules(ctx context.Context) (store.Settings, error)
	AddRule(ctx context.Context, kind store.RuleKind, pattern string, keep store.Retention) (store.Settings, error)
	RemoveRule(ctx context.Context, kind store.RuleKind, pattern string) (store.Settings, error)
	FillSeries(ctx context.Context, pattern string, filled store.Period) (store.Settings, error)
	Indexes(ctx context.Context) (states []admin.IndexState, version int64, err error)
	Index(ctx context.Context, name string) (admin.IndexState, error)
	CreateIndex(ctx context.Context, name, match, group string, own ...string) error
	DeleteIndex(ctx context.Context, name string) error
}

// Config bounds requests. Its zero value works.
type Config struct {
	// Roles are the names of the roles that this process runs. The answer to a request for
	// another role's path names them.
	Roles []string

	// Increments bounds POST /v1/increments.
	Increments IncrementsConfig

	// Timeout bounds the reads of one request. Default 30s.
	Timeout time.Duration

	// MaxWatchers is how many watchers are served at once. Default 1000.
	MaxWatchers int

	// MaxWatched is how many counters are watched at once. A counter counts once for all watchers
	// that share its reads. Default 100,000: MaxWatchers times maxQuery.
	MaxWatched int

	// KeepAlive is the longest silence that a watcher gets. Default 15s.
	KeepAlive time.Duration

	// WriteTimeout is how long a watcher may take to read an event before it is
	// dropped. Default 10s.
	WriteTimeout time.Duration

	// KnownCallers is set if callers have tokens: then only they learn why the process is not
	// ready.
	KnownCallers bool

	// Logger gets the details that clients do not see. Default: discarded.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.MaxWatchers = cmp.Or(c.MaxWatchers, 1000)
	c.MaxWatched = cmp.Or(c.MaxWatched, 100_000)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Increments = c.Increments.withDefaults()
	return c
}

// An API answers requests with services.
type API struct {
	services Services
	cfg      Config

	buffers sync.Pool // of *[pooled]byte: small bodies
	pools   pools
	asking  struct { // calls for values, by caller and sequence
		sync.Mutex
		fair.Usage
	}

	gate  *gate // before POST /v1/increments and POST /v1/batches
	queue queue // of increments
	// decoding has room for the large bodies that are decoded at once: a batch needs up to 20 times its bytes, and
	// half of the processors are for everything else.
	decoding chan struct{}

	told atomic.Int64 // when the log last got an error of a store that a person has to change

	feeds   feeds           // of the watchers
	closing context.Context // ends all watchers
	close   context.CancelFunc
}

// New returns the API of what s holds.
func New(s Services, cfg Config) *API {
	a := &API{services: s, cfg: cfg.withDefaults(), gate: newGate(), decoding: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1))}
	in := a.cfg.Increments
	a.pools = newPools(&a.cfg)
	a.queue.most, a.queue.limit, a.queue.bus = in.Timeout/4, in.MaxSending, in.Bus
	a.buffers.New = func() any { return new([pooled]byte) }
	a.feeds.shared = make(map[string]*feed)
	a.closing, a.close = context.WithCancel(context.Background())
	return a
}

// CloseStreams ends all watchers and refuses new ones. Other requests are still answered. It
// does not wait. A server that is shut down must call it, because nothing else ends streams.
func (a *API) CloseStreams() { a.close() }

// StopIncrements refuses requests for increments from now on. It waits until the requests under
// way are done or ctx ends, and returns how many are left. Call it once.
func (a *API) StopIncrements(ctx context.Context) (left int) { return a.gate.shut(ctx) }

// Sending is how many requests for increments are being served.
func (a *API) Sending() int { return a.gate.count() }
