package datastore

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

// SetWindow makes one attempt at a transaction on the meta record. Like ResetCounter it also works with
// ReadOnly.
func (s *Store) SetWindow(ctx context.Context, window time.Duration) (store.Settings, error) {
	if window <= 0 {
		return store.Settings{}, fmt.Errorf("%w: the window must be positive, got %s", store.ErrRefused, window)
	}
	return s.changeSettings(ctx, "set the window", nil, func(current store.Settings, when time.Time) (store.Settings, error) {
		if window == current.Window {
			return current, nil
		}
		return current.Changed(window, when).At(when), nil
	})
}

// ChangeRules makes one attempt at a transaction on the meta record, also with ReadOnly.
func (s *Store) ChangeRules(ctx context.Context, change store.RuleChange) (store.Settings, error) {
	var removed []ref
	if x := change.Index; x != nil && x.Step == store.RemoveIndex {
		removed = append(removed, rangeRef(x.Index.Number, 1))
	}
	return s.changeSettings(ctx, "change the rules", removed, func(current store.Settings, when time.Time) (store.Settings, error) {
		return current.ChangeRules(change, when, store.RulesSettle)
	})
}

// changeSettings makes one attempt at a transaction that writes the settings that change returns, if
// their version is another one, and removes entities with it.
func (s *Store) changeSettings(ctx context.Context, doing string, removed []ref, change func(current store.Settings, when time.Time) (store.Settings, error)) (set store.Settings, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return set, certain(err)
	}
	defer cancel()
	err = s.changeMeta(ctx, removed, func(m metaRecord, when time.Time) (map[string]*pb.Value, error) {
		if err := s.compare(&m); err != nil {
			return nil, err
		}
		current := m.settings.At(when)
		if set, err = change(current, when); err != nil || set.Version == current.Version {
			return nil, err
		}
		return settingsProperties(set), nil
	})
	if err != nil {
		return store.Settings{}, certain(err)
	}
	return set, s.confirm(ctx, doing)
}

// settingsProperties returns the properties of the meta record for the settings. Durations are in Go's
// notation. pace and pace_until are null without a pace, and rules without rules; else it has
// store.StoredRules in JSON.
func settingsProperties(x store.Settings) map[string]*pb.Value {
	properties := map[string]*pb.Value{
		"version": integer(x.Version), "window": text(x.Window.String()), "since": instant(x.Since),
		"forget_before": instant(x.ForgetBefore), "pace": instant(time.Time{}), "pace_until": instant(x.PaceUntil),
		"rules": encodeRules(x.Rules),
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
	if f.has("rules") {
		x.Rules = decodeRules(f)
	}
	if x.Version < 1 || x.ForgetBefore.IsZero() {
		f.wrong("version", "of settings")
	}
	return x
}

func encodeRules(r *store.Rules) *pb.Value {
	if r == nil {
		return instant(time.Time{})
	}
	written, err := json.Marshal(r.Stored())
	if err != nil {
		panic(err) // its fields are text and times
	}
	return text(string(written))
}

// decodeRules refuses fields that it does not know: they are rules of a newer version.
func decodeRules(f *fields) *store.Rules {
	var stored store.StoredRules
	d := json.NewDecoder(strings.NewReader(f.text("rules")))
	d.DisallowUnknownFields()
	if d.Decode(&stored) == nil {
		if rules, err := stored.Rules(); err == nil {
			return rules
		}
	}
	f.wrong("rules", "rules that this version knows")
	return nil
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
