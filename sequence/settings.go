package sequence

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/store"
)

// known is the settings of the last check.
type known struct {
	checking chan struct{} // has room for the call that reads them
	last     atomic.Pointer[snapshot]
}

var errChecking = errors.New("another call reads the settings")

// enter waits until no other call reads the settings. With atOnce it does not wait.
func (k *known) enter(ctx context.Context, atOnce bool) error {
	select {
	case k.checking <- struct{}{}:
		return nil
	default:
	}
	if atOnce {
		return errChecking
	}
	select {
	case k.checking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type snapshot struct {
	store.Settings
	asked time.Time // when the check began, by the monotonic clock
	at    time.Time // then or a little later, by the store's clock
}

// age is the age of the settings, by the clock that advanced further: the machine may have been
// suspended, and its wall clock may have been set.
func (x *Issuer) age(s *snapshot) time.Duration {
	if s == nil {
		return store.SettingsMaxAge
	}
	return max(time.Since(s.asked), x.clock.Now().Sub(s.at))
}

// settings returns settings that are younger than store.SettingsMaxAge. It reads them again after
// store.CheckEvery; meanwhile other calls use the old ones.
func (x *Issuer) settings(ctx context.Context) (store.Settings, error) {
	s := x.known.last.Load()
	age := x.age(s)
	if age < store.CheckEvery {
		return s.Settings, nil
	}
	usable := age < store.SettingsMaxAge
	if err := x.known.enter(ctx, usable); err != nil {
		if usable {
			return s.Settings, nil
		}
		return store.Settings{}, err
	}
	defer func() { <-x.known.checking }()
	if s = x.known.last.Load(); x.age(s) < store.CheckEvery { // another call was faster
		return s.Settings, nil
	}
	fresh, err := x.read(ctx)
	if err == nil {
		s = fresh
		x.known.last.Store(s)
	}
	if errors.Is(err, store.ErrOtherDatabase) || x.age(s) >= store.SettingsMaxAge {
		return store.Settings{}, cmp.Or(err, errOld)
	}
	return s.Settings, nil
}

var errOld = errors.New("the answer of the store is over " + store.SettingsMaxAge.String() + " old")

// read reads the settings. They may be as old as the call, which may have lasted while the machine was suspended.
func (x *Issuer) read(ctx context.Context) (*snapshot, error) {
	began, asked, at := x.clock.Moment(), time.Now(), x.clock.Now()
	checked, err := x.store.Check(ctx)
	if err != nil {
		return nil, err
	}
	if x.clock.Learn(checked.At, began); !x.clock.Known() {
		return nil, errOld
	}
	if !checked.At.IsZero() { // before the first lesson at is by the machine's clock
		at = checked.At
	}
	return &snapshot{checked.Settings, asked, at}, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
