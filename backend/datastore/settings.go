package datastore

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

// SetWindow makes one attempt at a transaction on the meta record. Like ResetCounter it also works with
// ReadOnly.
func (s *Store) SetWindow(ctx context.Context, window time.Duration) (set store.Settings, err error) {
	if window <= 0 {
		return set, fmt.Errorf("%w: the window must be positive, got %s", store.ErrRefused, window)
	}
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return set, certain(err)
	}
	defer cancel()
	err = s.changeMeta(ctx, func(m metaRecord, when time.Time) (map[string]*pb.Value, error) {
		if err := s.compare(&m); err != nil {
			return nil, err
		}
		if set = m.settings.At(when); window == set.Window {
			return nil, nil
		}
		set = set.Changed(window, when).At(when)
		return settingsProperties(set), nil
	})
	if err != nil {
		return store.Settings{}, certain(err)
	}
	return set, s.confirm(ctx, "set the window")
}

// ChangeRules refuses every rule: this store keeps no series.
func (s *Store) ChangeRules(context.Context, store.RuleChange) (store.Settings, error) {
	return store.Settings{}, fmt.Errorf("%w: use pebble: for counters with series", store.ErrNoSeries)
}

// SweepSeries does nothing: this store keeps no series.
func (s *Store) SweepSeries(ctx context.Context) error {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return ctx.Err()
}

// settingsProperties returns the properties of the meta record for the settings. Durations are in Go's
// notation. pace and pace_until are null without a pace.
func settingsProperties(x store.Settings) map[string]*pb.Value {
	properties := map[string]*pb.Value{
		"version": integer(x.Version), "window": text(x.Window.String()), "since": instant(x.Since),
		"forget_before": instant(x.ForgetBefore), "pace": instant(time.Time{}), "pace_until": instant(x.PaceUntil),
	}
	if x.Pace != 0 {
		properties["pace"] = text(x.Pace.String())
	}
	return properties
}

func settingsOf(f *fields) store.Settings {
	x := store.Settings{
		Version: f.integer("version"), Window: f.duration("window"), Since: f.instant("since"),
		ForgetBefore: f.instant("forget_before"), PaceUntil: f.instant("pace_until"),
	}
	if f.has("pace") {
		x.Pace = f.duration("pace")
	}
	if x.Version < 1 || x.ForgetBefore.IsZero() {
		f.wrong("version", "of settings")
	}
	return x
}

// An identity separates the cached totals of different databases. A copied database has the original's
// id, but another name.
type identity struct {
	prefix string
	key    [sha256.Size]byte
}

func identityOf(cfg Config, m *metaRecord) (x identity) {
	name := fmt.Appendf(nil, "%q %q %q %q", m.id, cfg.Project, cfg.Database, cfg.Namespace)
	sum := sha256.Sum256(name)
	x.prefix = "cm:" + base64.RawURLEncoding.EncodeToString(sum[:12]) + ":"
	mac := hmac.New(sha256.New, m.cacheKey)
	_, _ = mac.Write(name)
	mac.Sum(x.key[:0])
	return x
}

// CacheIdentity returns the prefix of this database's cache keys, and the key of their checksums. Both
// are the same in all processes.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) {
	return s.identity.prefix, s.identity.key
}
