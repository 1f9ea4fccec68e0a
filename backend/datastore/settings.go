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

// SetWindow is one try of a transaction on the meta record. Like ResetCounter it works in a
// store that was opened for reading.
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

// settingsProperties are the properties of the meta record that hold settings. Durations are as Go writes
// them; pace and pace_until are null where there are none.
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

// An identity keeps cached totals of different databases apart. A database that was copied has
// the id of the original, and another name.
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

// CacheIdentity is the prefix under which a cache keeps totals of this database, and the key of their
// checksums. It is the same in all processes.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) {
	return s.identity.prefix, s.identity.key
}
