package app

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
)

// apart has the backends of roles in processes of their own.
type apart struct {
	store store.Store
	bus   backend.Channel
	cache store.Cache
}

// openApart opens backends that outlive the roles on them.
func openApart(t *testing.T) *apart {
	t.Helper()
	s, err := pebble.Open(pebble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	b, err := inproc.New(inproc.Config{WaitForAck: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	cache, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &apart{s, b, cache}
}

// run runs the roles of cfg with the backends that they need.
func (x *apart) run(t *testing.T, cfg Config) *running {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	a, err := newApp(cfg, func(cfg Config) (*backends, error) {
		b := &backends{}
		if cfg.Roles.Has(needBus) {
			b.bus = shared(x.bus)
		}
		if cfg.Roles.Has(needStore) {
			b.store = sharedStore{x.store}
		}
		if cfg.Roles.Has(needCache) {
			b.cache = x.cache
		}
		return b, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, a)
}

// A sharedStore is closed by the test and not by one of the Apps on it.
type sharedStore struct{ store.Store }

func (sharedStore) Close() error { return nil }

type sharedBus struct{ backend.Channel }

func (sharedBus) Close() error { return nil }

func shared(b backend.Channel) backend.OpenBus { return backend.OpenBus{Channel: sharedBus{b}} }

// Subscribe delivers as a bus between processes does: no message says that it comes once.
func (b sharedBus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	from, err := b.Channel.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	to := make(chan *message.Message)
	go func() {
		defer close(to)
		for m := range from {
			m.SetContext(bareContext{m.Context()})
			select {
			case to <- m:
			case <-ctx.Done():
				m.Nack()
			}
		}
	}()
	return to, nil
}

// A bareContext has no values.
type bareContext struct{ context.Context }

func (bareContext) Value(any) any { return nil }
