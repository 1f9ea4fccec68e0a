package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/internal/units"
	"github.com/countmill/countmill/internal/webui"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// makeRoles makes the roles that were asked for on the backends that are open. A store on a disk
// of this machine has one in disks.
func makeRoles(cfg Config, b *backends, disks []*onDisk) ([]named, error) {
	var before, after []named
	window, journal := func() time.Duration { return ownWindow(cfg) }, patternsOf(cfg)
	var onRules func(context.Context)
	if cfg.Roles.Has(Aggregator) {
		agg, err := newAggregating(cfg, b, disks)
		if err != nil {
			return nil, err
		}
		window, onRules, journal = agg.window, agg.ReadSettings, agg.journal
		before = append(before, intakes(cfg, b)...)
		before = append(before, named{"aggregator", agg}, named{"bus", newReceiving(b.bus, b.busName)})
		after = append(after, named{"backlog", backlog{aggregator: agg.Aggregator}})
	}
	if cfg.Roles.Has(Publisher) {
		pub, err := newPublishing(cfg, b, window, journal)
		if err != nil {
			return nil, err
		}
		before = append([]named{{"publisher", pub}}, before...)
	}
	work := indexings(cfg, b, onRules)
	if cfg.Roles.Has(Reader) {
		rd, err := newReading(cfg, b, poked(onRules, work))
		if err != nil {
			return nil, err
		}
		before = append(before, named{"reader", rd})
	}
	for _, w := range work {
		after = append(after, named{"indexer", w})
	}
	if cfg.Roles.Has(Aggregator | Reader) {
		issuer, err := newIssuing(cfg, b)
		if err != nil {
			return nil, err
		}
		after = append(after, named{"sequences", issuer}, named{"admin", tending{store: b.store, recounter: recount.New(b.store, recount.Config{}), cache: b.cache, bus: b.bus.Channel}})
	}
	return append(before, after...), nil
}

// publishing is the role publisher.
type publishing struct {
	idle
	*publisher.Publisher
	receiver *publisher.BatchReceiver
	routes   api.IncrementsConfig
	folded   bool // when Publish returns
}

func newPublishing(cfg Config, b *backends, window func() time.Duration, journal func(counter string) bool) (*publishing, error) {
	c := publisherConfig(cfg, b, window)
	c.Journal = journal
	p, err := publisher.New(b.bus, c)
	if err != nil {
		return nil, err
	}
	routes := incrementsConfig(cfg, b, window)
	routes.Journal = journal
	return &publishing{Publisher: p, receiver: publisher.NewBatchReceiver(b.bus, b.bus.Topic, b.database()), routes: routes, folded: b.inProcess}, nil
}

func publisherConfig(cfg Config, b *backends, window func() time.Duration) publisher.Config {
	c := cfg.Publisher
	c.Topic, c.CountWithin, c.DedupWindow = b.bus.Topic, cfg.CountWithin, window
	c.Database = b.database()
	c.Logger = cfg.Logger.With("role", "publisher")
	return c
}

// busAway is how long a bus on another machine may take for a message without being thought
// slow. A guess: Pub/Sub takes a tenth of it.
const busAway = time.Second

func incrementsConfig(cfg Config, b *backends, window func() time.Duration) api.IncrementsConfig {
	c := api.IncrementsConfig{
		Timeout: cfg.RequestTimeout, DedupWindowFunc: window,
		// Half of the publisher's open batch: 64 bytes of JSON take some 224 bytes there.
		MaxSending: min(cfg.Publisher.MaxEntries/2, cfg.Publisher.MaxBytes/448),
		Bus:        max(cfg.Publisher.Linger, 0),
	}
	if cfg.Publisher.Linger == 0 {
		c.Bus = cfg.CountWithin
	}
	if !b.inProcess {
		c.Bus += busAway
	}
	return c
}

// Routes comes before that of a disk, which refuses increments.
func (p *publishing) Routes(s *surface) {
	s.Sender, s.BatchReceiver, s.Increments, s.Folded = p.Publisher, p.receiver, p.routes, p.folded
}

func (p *publishing) Ready(context.Context) (string, error) { return "", p.Publisher.Ready() }

func (p *publishing) Collect() []prometheus.Collector {
	return samples(func() []sample { return publisherSamples(p.Publisher) })
}

// Stop sends the increments that the publisher holds.
func (p *publishing) Stop(ctx context.Context) error { return p.Close(ctx) }

// aggregating is the role aggregator. It outlives the signal to stop, because it commits the
// increments that the publisher still holds.
type aggregating struct {
	idle
	*aggregator.Aggregator
	cfg     Config
	folds   prometheus.Histogram
	failed  func() // closes a bus that reaches nobody else
	running task
}

func newAggregating(cfg Config, b *backends, disks []*onDisk) (*aggregating, error) {
	s := &aggregating{cfg: cfg, folds: foldDurations(), failed: b.closeLocalBus}
	folded := b.store
	for _, d := range disks {
		folded = roomyStore{folded, d.space}
	}
	c := aggregatorConfig(cfg, b, s.folds)
	var err error
	s.Aggregator, err = aggregator.New(b.bus, folded, c)
	return s, err
}

func aggregatorConfig(cfg Config, b *backends, folds prometheus.Observer) aggregator.Config {
	c := cfg.Aggregator
	c.Topic, c.CountWithin = b.bus.Topic, cfg.CountWithin
	// The aggregator must end within its step of the stop order (stop.go). Before the end
	// it gives back, in order, the messages that it could not commit.
	c.DrainTimeout = cfg.ShutdownTimeout / 4
	c.OnFold = func(took time.Duration) { folds.Observe(took.Seconds()) }
	c.Setup = map[string]string{
		"version": BuildVersion().Version, "count-within": units.FormatDuration(cfg.CountWithin),
		"shard-rate": strconv.FormatFloat(cfg.Aggregator.ShardRate, 'g', -1, 64),
	}
	c.Logger = cfg.Logger.With("role", "aggregator")
	return c
}

// window is how old the time of an increment may be: the deduplication window of the database.
func (s *aggregating) window() time.Duration {
	return cmp.Or(s.Settings().Window, ownWindow(s.cfg))
}

// ownWindow is the window of a process that has no database, or has not read its settings yet.
func ownWindow(cfg Config) time.Duration {
	return cmp.Or(cfg.DedupWindow, countmill.DefaultDedupWindow)
}

func (s *aggregating) Ready(context.Context) (string, error) { return "", s.Aggregator.Ready() }

func (s *aggregating) Collect() []prometheus.Collector {
	return append(samples(func() []sample { return aggregatorSamples(s.Aggregator) }), s.folds)
}

func (s *aggregating) Run(ctx context.Context) error {
	return s.running.run(context.WithoutCancel(ctx), func(ctx context.Context) error {
		if err := s.Aggregator.Run(ctx); err != nil {
			// A sender on a bus within the process would wait for an aggregator that has ended.
			s.failed()
			return fmt.Errorf("aggregator ended: %w", err)
		}
		return nil
	})
}

func (s *aggregating) Stop(ctx context.Context) error {
	s.running.stop()
	if !s.running.wait(ctx) {
		return errors.New("it was not done in time; what it had not committed is delivered again")
	}
	return nil // Run has returned its error
}

// backlog is the work that waits for an aggregator. /readyz names it after the reader's cache.
type backlog struct {
	idle
	aggregator *aggregator.Aggregator
}

func (b backlog) Ready(context.Context) (degraded string, err error) {
	return labelled("aggregator", b.aggregator.Degraded()), nil
}

// labelled is a reason with the part that it is about; empty if there is none.
func labelled(part, without string) string {
	if without == "" {
		return ""
	}
	return part + ": " + without
}

// receiving is the bus of an aggregator.
type receiving struct {
	idle
	why   func() error
	stats []prometheus.Collector
}

func newReceiving(bus backend.OpenBus, name string) receiving {
	r := receiving{why: bus.Ready}
	if r.why == nil {
		r.why = func() error { return nil }
	}
	if c, ok := bus.Channel.(backend.Counting); ok {
		r.stats = samples(func() []sample { return busSamples(name, c.Stats()) })
	}
	if o, ok := bus.Channel.(backend.Observer); ok {
		r.stats = append(r.stats, samples(func() []sample { return unseenSamples(o) })...)
	}
	return r
}

func (r receiving) Ready(context.Context) (string, error) { return "", r.why() }

func (r receiving) Collect() []prometheus.Collector { return r.stats }

// taking moves the messages that the bus gave up into the dead letters. A message that it cannot
// move stays on the bus.
type taking struct {
	idle
	*aggregator.Intake
	log     *slog.Logger
	running *task
}

// intakes is one for a bus that gives up messages.
func intakes(cfg Config, b *backends) []named {
	if b.bus.GivenUp == nil {
		return nil
	}
	return []named{{"intake", &taking{log: cfg.Logger, running: b.task(), Intake: aggregator.NewIntake(b.bus.GivenUp, b.store, aggregator.IntakeConfig{
		Topic:  b.bus.GivenUpTopic,
		Logger: cfg.Logger.With("role", "intake"),
	})}}}
}

func (s *taking) Collect() []prometheus.Collector {
	return samples(func() []sample { return intakeSamples(s.Intake) })
}

func (s *taking) Run(ctx context.Context) error {
	return s.running.run(context.WithoutCancel(ctx), func(ctx context.Context) error {
		if err := s.Intake.Run(ctx); err != nil {
			s.log.LogAttrs(ctx, slog.LevelError, "messages that the bus gives up are not taken in any more", slog.Any("err", err))
		}
		return nil
	})
}

// Stop does not wait: the backends close after it has ended.
func (s *taking) Stop(context.Context) error {
	s.running.stop()
	return nil
}

// reading is the role reader, and the admin of its counters.
type reading struct {
	idle
	*reader.Reader
	admin *admin.Admin
	ages  *prometheus.HistogramVec
	alone bool // no aggregator of this process shows its lag
}

// onRules is called after each change of the rules.
func newReading(cfg Config, b *backends, onRules func(context.Context)) (*reading, error) {
	s := &reading{ages: totalAges(), alone: !cfg.Roles.Has(Aggregator)}
	var err error
	if s.Reader, err = reader.New(b.store, b.cache, readerConfig(cfg, b, s.ages)); err != nil {
		return nil, err
	}
	told := func(ctx context.Context) {
		s.Reader.ReadSettings(ctx)
		onRules(ctx)
		if cfg.Roles.Has(Aggregator) { // others leave opening balances to the rounds of an aggregator
			b.balances.tendSoon(ctx, cfg, b.store)
		}
	}
	s.admin, err = admin.New(s.Reader, b.store, admin.Config{Timeout: cfg.RequestTimeout, OnRules: told, Logger: cfg.Logger.With("role", "admin")})
	return s, err
}

func readerConfig(cfg Config, b *backends, ages *prometheus.HistogramVec) reader.Config {
	fromCache, fromStore := ages.WithLabelValues(reader.SourceCache), ages.WithLabelValues(reader.SourceStore)
	c := cfg.Reader
	c.DefaultStaleness = max(c.DefaultStaleness, 0)
	// A store of this process reads with its processors. Half of them serve everything else.
	if b.store.Limits().CertainOutcome {
		c.KeysAtOnce = cmp.Or(c.KeysAtOnce, 1000*max(runtime.GOMAXPROCS(0)/2, 1))
	}
	if cfg.freeReads() {
		c.BoardRate = -1
	}
	c.Guess, c.Database = cmp.Or(cfg.Aggregator.Shards, 1), b.database()
	c.OnServe = func(age time.Duration, source string) {
		if source == reader.SourceCache {
			fromCache.Observe(age.Seconds())
		} else {
			fromStore.Observe(age.Seconds())
		}
	}
	c.Logger = cfg.Logger.With("role", "reader")
	return c
}

func (s *reading) Ready(ctx context.Context) (string, error) {
	degraded, err := s.Reader.Ready(ctx)
	return labelled("reader", degraded), err
}

// Stop ends scans for boards, which no request waits for.
func (s *reading) Stop(context.Context) error {
	s.Reader.Close()
	return nil
}

func (s *reading) Routes(to *surface) {
	to.Reader, to.Admin = s.Reader, s.admin
	p := webui.New()
	to.router.Files(p.Paths(), p)
}

func (s *reading) Collect() []prometheus.Collector {
	return append(samples(
		func() []sample { return readerSamples(s.Reader, s.alone) },
		func() []sample { return adminSamples(s.admin) },
	), s.ages)
}

// tending shows and repairs the contents of the store. A person reaches it by any process that has the
// store: aggregators have the right to write.
type tending struct {
	idle
	store     store.Store
	recounter *recount.Recounter
	cache     store.Cache
	bus       backend.Channel // nil for a reader alone
}

func (s tending) Collect() []prometheus.Collector {
	pool, ok := s.store.(backend.Pooled)
	if !ok {
		return nil
	}
	return samples(func() []sample { return poolSamples(pool) })
}

func (s tending) Routes(to *surface) {
	if m, ok := s.store.(backend.Moments); ok {
		to.Moment = m.Moment
	}
	if r, ok := s.store.(backend.Restorable); ok {
		to.Restored = r.Restored
	}
	if o, ok := s.bus.(backend.Observer); ok {
		to.Unseen = o.Unseen
	}
	to.DeadLetters = admin.NewDeadLetters(s.store)
	to.Journal = admin.NewJournal(s.store, journalTimeout)
	to.Recounter = s.recounter
	to.Verifier = admin.NewVerifier(s.store, s.store).CompareGroups(s.store)
}
