package storetest_test

import (
	"context"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// ownSettings keeps settings of its own, and makes a wrong change of them.
type ownSettings struct {
	*fakestore.Store
	change func(before, after store.Settings) store.Settings

	mu  sync.Mutex
	own store.Settings
}

// settings makes stores in which change replaces the result of SetWindow.
func settings(change func(before, after store.Settings) store.Settings) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store { return &ownSettings{Store: s, change: change} }
}

func (o *ownSettings) below() *fakestore.Store { return o.Store }

func (o *ownSettings) Check(ctx context.Context) (store.Checked, error) {
	checked, err := o.Store.Check(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.own.Version == 0 {
		o.own = checked.Settings
	}
	o.own = o.own.At(o.Now())
	checked.Settings = o.own
	if !checked.At.IsZero() {
		checked.At = o.Now()
		checked.Settings = o.own.At(checked.At)
	}
	return checked, err
}

func (o *ownSettings) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	if _, err := o.Check(ctx); err != nil {
		return store.Settings{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.Now(); window != o.own.Window {
		before := o.own.At(now)
		o.own = o.change(before, before.Changed(window, now)).At(now)
	}
	return o.own, nil
}

// callCounter treats every call as a change.
type callCounter struct {
	*fakestore.Store
	mu    sync.Mutex
	calls int64
}

func (c *callCounter) below() *fakestore.Store { return c.Store }

func (c *callCounter) Check(ctx context.Context) (store.Checked, error) {
	checked, err := c.Store.Check(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	checked.Settings.Version += c.calls
	return checked, err
}

func (c *callCounter) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	before, err := c.Check(ctx)
	if err != nil {
		return store.Settings{}, err
	}
	set, err := c.Store.SetWindow(ctx, window)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before.Settings.Window == window {
		c.calls++
	}
	set.Version += c.calls
	return set, err
}

// stale uses settings that it read before.
type stale struct {
	*fakestore.Store
	keeps bool // the first settings that it read

	mu   sync.Mutex
	read store.Settings
}

func (s *stale) below() *fakestore.Store { return s.Store }

func (s *stale) Check(ctx context.Context) (store.Checked, error) {
	checked, err := s.Store.Check(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read.Version == 0 {
		s.read = checked.Settings
	}
	checked.Settings = s.read.At(s.Now())
	return checked, err
}

func (s *stale) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	if s.keeps {
		set, err := s.Store.SetWindow(ctx, window)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.read = set
		return set, err
	}
	checked, err := s.Check(ctx)
	if err != nil {
		return store.Settings{}, err
	}
	time.Sleep(time.Millisecond) // others read them too
	next := checked.Settings.Changed(window, s.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = next
	return next, nil
}

// otherIdentity has another store's identity.
type otherIdentity struct {
	*fakestore.Store
	other *fakestore.Store
}

var everybody = fakestore.New(fakestore.Options{})

func (d otherIdentity) below() *fakestore.Store { return d.Store }

func (d otherIdentity) CacheIdentity() (prefix string, key [32]byte) { return d.other.CacheIdentity() }
