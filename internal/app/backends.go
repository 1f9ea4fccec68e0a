package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// backends are the open backends of the roles; nil for a backend that the roles do not need.
type backends struct {
	bus   backend.Channel
	store store.Store
	cache store.Cache

	topic        string       // of the bus; empty for the roles' default
	busReady     func() error // nil if the bus has no reason not to deliver
	givenUp      backend.Channel
	givenUpTopic string

	// inProcess is true for a bus within the process: nobody would take its messages when the
	// aggregator has ended.
	inProcess bool
	disk      backend.Disk    // nil for a store that is elsewhere
	sweeper   backend.Sweeper // nil for a store that removes markers by itself

	busClose   sync.Once
	busErr     error
	closeCache func() error // nil if there is nothing to close
}

// openTimeout bounds the opening of each backend.
const openTimeout = 30 * time.Second

// openBackends opens the backends that the roles need, or none.
func openBackends(cfg Config) (*backends, error) {
	c, err := chooseBackends(cfg)
	if err != nil {
		return nil, err
	}
	b := &backends{}
	for _, open := range []func(chosen, Config) error{b.openStore, b.openBus, b.openCache} {
		if err := open(c, cfg); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

func (b *backends) openStore(c chosen, cfg Config) (err error) {
	o := c.store.opener
	if o.Open == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if b.store, err = o.Open(ctx, c.store.url, backend.StoreConfig{
		Window: cfg.DedupWindow, ReadOnly: !cfg.Roles.Has(Aggregator), Create: cfg.Create, BackupRoot: cfg.BackupRoot,
		Logger: cfg.Logger.With("backend", o.Scheme),
	}); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	if b.disk, _ = b.store.(backend.Disk); b.disk == nil && cfg.MinFree > 0 {
		return Usagef("--min-free: bounds the disk of the store, and %s: is on no disk of this machine: leave it out", o.Scheme)
	}
	b.sweeper, _ = b.store.(backend.Sweeper)
	return nil
}

// busConfig configures the bus for the roles. Two windows have room, because one is committed
// while the next one fills. The bus holds as many messages as an aggregator, and more bytes than
// two windows, because a message needs more memory than its bytes.
func busConfig(cfg Config) backend.BusConfig {
	return backend.BusConfig{
		Publish: cfg.Roles.Has(Publisher), Receive: cfg.Roles.Has(Aggregator), Create: cfg.Create,
		Messages: 2 * cfg.WindowMessages, Bytes: 2 * cfg.WindowMemory,
	}
}

func (b *backends) openBus(c chosen, cfg Config) error {
	o := c.bus.opener
	if o.Open == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	config := busConfig(cfg)
	config.Logger = cfg.Logger.With("backend", o.Scheme)
	open, err := o.Open(ctx, c.bus.url, config)
	if err != nil {
		return fmt.Errorf("--bus: %w", err)
	}
	b.bus, b.topic, b.inProcess, b.busReady = open.Channel, open.Topic, o.OneProcess, open.Ready
	b.givenUp, b.givenUpTopic = open.GivenUp, open.GivenUpTopic
	return nil
}

func (b *backends) openCache(c chosen, cfg Config) (err error) {
	o := c.cache.opener
	if o.Open == nil {
		return nil
	}
	if b.cache, b.closeCache, err = o.Open(c.cache.url, b.store, cfg.Logger.With("backend", o.Scheme)); err != nil {
		return fmt.Errorf("--cache: %w", err)
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

func (b *backends) closeLocalBus() {
	if b.inProcess {
		b.closeBus()
	}
}

func (b *backends) closeBus() error {
	b.busClose.Do(func() { b.busErr = b.bus.Close() })
	return b.busErr
}

// close closes them, the bus first: nothing may reach a store that is closed.
func (b *backends) close() error {
	if b == nil {
		return nil
	}
	var errs []error
	if b.bus != nil {
		errs = append(errs, b.closeBus())
	}
	if b.givenUp != nil {
		errs = append(errs, b.givenUp.Close())
	}
	if b.closeCache != nil {
		errs = append(errs, b.closeCache())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	return errors.Join(errs...)
}
