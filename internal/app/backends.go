package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// backends are the open backends of the roles. No role uses a backend that it did not ask for.
type backends struct {
	bus     backend.OpenBus
	busName string // the scheme
	store   store.Store
	cache   store.Cache

	// inProcess is true for a bus within the process: nobody would take its messages when the
	// aggregator has ended.
	inProcess bool

	balances balances // of the store's rules for the journal

	closers []func() error // in the order of their calls
	tasks   []*task        // which end before anything closes

	busClose sync.Once
	busErr   error
}

// The roles that need a backend.
const (
	needBus   = Publisher | Aggregator
	needStore = Aggregator | Reader | Indexer
	needCache = Reader
)

// openTimeout bounds the opening of each backend.
const openTimeout = 30 * time.Second

// openBackends opens the backends that the roles need, or none.
func openBackends(cfg Config) (*backends, error) {
	c, err := chooseBackends(cfg)
	if err != nil {
		return nil, err
	}
	b := &backends{}
	for _, of := range []struct {
		roles Roles
		open  func(chosen, Config) error
	}{{needStore, b.openStore}, {needBus, b.openBus}, {needCache, b.openCache}} {
		if !cfg.Roles.Has(of.roles) {
			continue
		}
		if err := of.open(c, cfg); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

func (b *backends) openStore(c chosen, cfg Config) (err error) {
	o := c.store.opener
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if b.store, err = o.Open(ctx, c.store.url, backend.StoreConfig{
		Window: cfg.DedupWindow, ReadOnly: !cfg.Roles.Has(Aggregator | Indexer), Create: cfg.Create,
		Logger: cfg.Logger.With("backend", o.Scheme),
	}); err != nil {
		return &FlagError{"store", err}
	}
	b.closers = []func() error{b.store.Close}
	if _, ok := b.store.(backend.Disk); !ok && cfg.MinFree > 0 {
		return Usagef("--min-free: bounds the disk of the store, and %s: is on no disk of this machine: leave it out", o.Scheme)
	}
	return nil
}

// busConfig configures the bus for the roles. Two windows have room, because one is committed
// while the next one fills. The bus holds as many messages as an aggregator, and more bytes than
// two windows, because a message needs more memory than its bytes.
func busConfig(cfg Config) backend.BusConfig {
	return backend.BusConfig{
		Publish: cfg.Roles.Has(Publisher), Receive: cfg.Roles.Has(Aggregator), Create: cfg.Create,
		Messages: 2 * cfg.Aggregator.WindowMessages, Bytes: 2 * cfg.Aggregator.WindowMemory,
	}
}

func (b *backends) openBus(c chosen, cfg Config) (err error) {
	o := c.bus.opener
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	config := busConfig(cfg)
	config.Logger = cfg.Logger.With("backend", o.Scheme)
	if b.bus, err = o.Open(ctx, c.bus.url, config); err != nil {
		return &FlagError{"bus", err}
	}
	b.busName, b.inProcess = o.Scheme, o.OneProcess
	before := []func() error{b.closeBus}
	if b.bus.GivenUp != nil {
		before = append(before, b.bus.GivenUp.Close)
	}
	b.closers = append(before, b.closers...) // nothing may reach a store that is closed
	return nil
}

func (b *backends) openCache(c chosen, cfg Config) error {
	o := c.cache.opener
	cache, closeIt, err := o.Open(c.cache.url, b.store)
	if err != nil {
		return &FlagError{"cache", err}
	}
	b.cache = cache
	if closeIt != nil {
		b.closers = slices.Insert(b.closers, len(b.closers)-1, closeIt) // before the store
	}
	return nil
}

// database is the tag of the store's database; 0 without a store, or if the store has no id.
func (b *backends) database() (t wire.DatabaseTag) {
	if s, ok := b.store.(interface{ ID() string }); ok {
		t = wire.TagOf(s.ID())
	}
	return t
}

// closeLocalBus closes a bus that reaches nobody outside the process.
func (b *backends) closeLocalBus() {
	if b.inProcess {
		_ = b.closeBus() // close returns the error
	}
}

func (b *backends) closeBus() error {
	b.busClose.Do(func() { b.busErr = b.bus.Close() })
	return b.busErr
}

// task is a task that has to end before the backends close.
func (b *backends) task() *task {
	t := &task{}
	b.tasks = append(b.tasks, t)
	return t
}

// close closes them, once.
func (b *backends) close() error {
	var errs []error
	for _, c := range b.closers {
		errs = append(errs, c())
	}
	b.closers = nil
	return errors.Join(errs...)
}

// closing is the backends as the last service.
type closing struct {
	idle
	*backends
}

// Stop gives up waiting when the time is up: the process ends next.
func (c closing) Stop(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() {
		for _, t := range c.tasks {
			t.stop()
			t.wait(context.Background())
		}
		closed <- c.close()
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return errors.New("they were not closed in time")
	}
}
