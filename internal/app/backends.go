package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/datastore"
	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/memcached"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
)

// backends is what the roles stand on; nil for what they do not need.
type backends struct {
	bus   bus
	store store.Store
	cache store.Cache

	closeCache func() error // nil where there is nothing to close

	topic    string       // of the bus; empty for the roles' default
	busReady func() error // why no messages come in; nil where a bus within the process has no way not to
	busStats func() gcppubsub.Stats
	// givenUp holds what the bus gave up delivering, under the topic of that name; nil
	// where nobody is to take that in.
	givenUp      bus
	givenUpTopic string

	// local is set for a bus within the process: it delivers once and is no use without
	// an aggregator.
	local    bool
	busClose sync.Once
	busErr   error

	dir   string                                // where the store keeps its data on this machine, or empty
	disk  func() uint64                         // how much of it is used; nil where dir is empty
	usage func() (free, size uint64, err error) // of the file system that dir is on; nil where that is empty
	sweep func(context.Context) error           // drops markers beyond the deduplication window; nil where the store drops them by itself
	// backup copies the store to a directory of this machine, and returns its path; nil where
	// it cannot.
	backup func(ctx context.Context, to string) (dir string, err error)
}

type bus interface {
	message.Publisher
	aggregator.Bus
}

// openBackends opens what the roles need, or nothing.
func openBackends(cfg Config) (*backends, error) {
	urls, err := checkBackends(cfg)
	if err != nil {
		return nil, err
	}
	b := &backends{}
	for _, open := range []struct {
		flag string
		open func(backendURL, Config) error
	}{{"store", b.openStore}, {"bus", b.openBus}, {"cache", b.openCache}} {
		u, ok := urls[open.flag]
		if !ok {
			continue
		}
		if err := open.open(u, cfg); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

func (b *backends) openBus(u backendURL, cfg Config) error {
	if u.scheme == "pubsub" {
		return b.openPubSub(u, cfg)
	}
	bus, err := inproc.New(inproc.Config{WaitForAck: true})
	if err != nil {
		return fmt.Errorf("--bus: %w", err)
	}
	b.bus, b.local = bus, true
	return nil
}

// openTimeout bounds the opening of what is elsewhere.
const openTimeout = 30 * time.Second

func (b *backends) openPubSub(u backendURL, cfg Config) error {
	project, topic, subscription, err := u.pubsub(cfg.Roles)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	bus, err := gcppubsub.Open(ctx, gcppubsub.Config{
		Project: project, Topic: topic, Subscription: subscription, Create: cfg.Create,
		DeadLetterTopic: u.params.Get("dead_letter"),
		ReceiveOnly:     !cfg.Roles.Has(Publisher),
		// As many messages as an aggregator holds, and more bytes than two windows: a message needs
		// more memory than its bytes. One window is committed while the next one fills.
		MaxOutstanding: 2 * cfg.WindowMessages, MaxBytes: 2 * cfg.WindowMemory,
		Logger: cfg.Logger.With("backend", "pubsub"),
	})
	if err != nil {
		return fmt.Errorf("--bus: %w", err)
	}
	b.bus, b.topic = bus, topic
	b.busStats = bus.Stats
	if !cfg.Roles.Has(Aggregator) {
		return nil
	}
	b.busReady = bus.Ready
	return b.openGivenUp(ctx, project, u.params.Get("dead_letter"), cfg)
}

// openGivenUp opens the subscription of what Pub/Sub gives up, where one is named.
func (b *backends) openGivenUp(ctx context.Context, project, subscription string, cfg Config) error {
	if subscription == "" {
		return nil
	}
	bus, err := gcppubsub.Open(ctx, gcppubsub.Config{
		Project: project, Topic: subscription, Subscription: subscription, ReceiveOnly: true, AnyTopic: true,
		MaxOutstanding: 10, MaxBytes: 16 << 20, ProbeEvery: time.Minute, // there is seldom anything, and no hurry
		Logger: cfg.Logger.With("backend", "pubsub", "subscription", subscription),
	})
	if err != nil {
		return fmt.Errorf("--bus: dead_letter: %w", err)
	}
	b.givenUp, b.givenUpTopic = bus, subscription
	return nil
}

func (b *backends) openDatastore(u backendURL, cfg Config) error {
	project, database, err := u.datastore()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	s, err := datastore.Open(ctx, datastore.Config{
		Project: project, Database: database, Namespace: u.params.Get("namespace"),
		Window: cfg.DedupWindow, ReadOnly: !cfg.Roles.Has(Aggregator), Create: cfg.Create,
		Logger: cfg.Logger.With("backend", "datastore"),
	})
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	b.store = s
	return nil
}

func (b *backends) openStore(u backendURL, cfg Config) error {
	if u.scheme == "datastore" {
		return b.openDatastore(u, cfg)
	}
	dir, err := u.dir()
	if err != nil {
		return err
	}
	s, err := pebble.Open(pebble.Config{
		Dir: dir, Namespace: u.params.Get("namespace"), Window: cfg.DedupWindow, BackupRoot: cfg.BackupRoot, Logger: cfg.Logger.With("backend", "pebble"),
	})
	if err != nil {
		return err // it names the directory and what to do
	}
	b.store, b.dir, b.disk, b.usage, b.backup = s, dir, s.DiskUsage, s.FileSystem, s.Backup
	b.sweep = s.Sweep
	return nil
}

func (b *backends) openCache(u backendURL, cfg Config) error {
	if u.scheme == "memcached" {
		return b.openMemcached(u, cfg)
	}
	n, err := u.count("totals")
	if err != nil {
		return err
	}
	c, err := memory.New(memory.Config{Totals: n})
	if err != nil {
		return fmt.Errorf("--cache: %w", err)
	}
	b.cache = c
	return nil
}

func (b *backends) openMemcached(u backendURL, cfg Config) error {
	servers, err := u.servers()
	if err != nil {
		return err
	}
	prefix, key := b.store.CacheIdentity()
	c, err := memcached.Open(memcached.Config{
		Servers: servers, Prefix: prefix, Key: key, Logger: cfg.Logger.With("backend", "memcached"),
	})
	if err != nil {
		return fmt.Errorf("--cache: %w", err)
	}
	b.cache, b.closeCache = c, c.Close
	return nil
}

func (b *backends) closeLocalBus() {
	if b.local {
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
