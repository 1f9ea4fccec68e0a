package storetest_test

import (
	"context"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// ruling keeps settings of its own, and changes their rules by change.
type ruling struct {
	*fakestore.Store
	change func(r *ruling, c store.RuleChange) (store.Settings, error)

	mu  sync.Mutex
	own store.Settings
}

func (r *ruling) below() *fakestore.Store { return r.Store }

// ruled makes stores that change rules in a wrong way.
func ruled(change func(r *ruling, c store.RuleChange) (store.Settings, error)) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store { return &ruling{Store: s, change: change} }
}

// read returns the settings in effect.
func (r *ruling) read() store.Settings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own
}

func (r *ruling) write(s store.Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own = s
}

func (r *ruling) Check(ctx context.Context) (store.Checked, error) {
	checked, err := r.Store.Check(ctx)
	if own := r.read(); own.Version != 0 {
		checked.Settings.Version, checked.Settings.Rules = own.Version, own.Rules
	} else {
		r.write(checked.Settings)
	}
	return checked, err
}

func (r *ruling) ChangeRules(ctx context.Context, c store.RuleChange) (store.Settings, error) {
	if _, err := r.Check(ctx); err != nil {
		return store.Settings{}, err
	}
	set, err := r.change(r, c)
	if err == nil {
		r.write(set)
	}
	return set, err
}

// changesSilently changes rules without a new version.
func changesSilently(r *ruling, c store.RuleChange) (store.Settings, error) {
	before := r.read()
	after, err := before.ChangeRules(c, r.Now(), 0)
	after.Version = before.Version
	return after, err
}

// replacesRules keeps only the rule that was changed last.
func replacesRules(r *ruling, c store.RuleChange) (store.Settings, error) {
	s := r.read()
	s.Rules = nil
	return s.ChangeRules(c, r.Now(), 0)
}

// changesRulesReadBefore lets others change the rules between its look and its change.
func changesRulesReadBefore(r *ruling, c store.RuleChange) (store.Settings, error) {
	before := r.read()
	time.Sleep(time.Millisecond)
	return before.ChangeRules(c, r.Now(), 0)
}

// takesAnyRule takes rules that mean nothing.
func takesAnyRule(r *ruling, c store.RuleChange) (store.Settings, error) {
	s := r.read()
	if after, err := s.ChangeRules(c, r.Now(), 0); err == nil {
		return after, nil
	}
	s.Version++
	s.Rules = &store.Rules{Series: []store.Rule{{Pattern: c.Pattern, Keep: c.Keep}}}
	return s, nil
}
