package app

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/loopback"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/reader"
)

// backends is what the roles stand on; nil for what they do not need.
type backends struct {
	bus   bus
	store store
	cache reader.Cache

	// local is set for a bus within the process: it delivers once and is no use without
	// an aggregator.
	local    bool
	busClose sync.Once
	busErr   error

	dir   string                // where the store keeps its data on this machine, or empty
	disk  func() uint64         // how much of it is used; nil where dir is empty
	sweep func(time.Time) error // drops what is beyond the horizon; nil where the store does that by itself
}

type bus interface {
	message.Publisher
	aggregator.Bus
}

type store interface {
	aggregator.Store
	reader.Store
	Close() error
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

func (b *backends) openBus(backendURL, Config) error {
	bus, err := loopback.New(loopback.Config{WaitForAck: true})
	if err != nil {
		return fmt.Errorf("--bus: %w", err)
	}
	b.bus, b.local = bus, true
	return nil
}

func (b *backends) openStore(u backendURL, cfg Config) error {
	dir, err := u.dir()
	if err != nil {
		return err
	}
	s, err := pebble.Open(pebble.Config{
		Dir: dir, Namespace: u.params.Get("namespace"), Logger: cfg.Logger.With("backend", "pebble"),
	})
	if err != nil {
		return err // it names the directory and what to do
	}
	b.store, b.dir, b.disk, b.sweep = s, dir, s.DiskUsage, s.Sweep
	return nil
}

func (b *backends) openCache(u backendURL, _ Config) error {
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
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	return errors.Join(errs...)
}
