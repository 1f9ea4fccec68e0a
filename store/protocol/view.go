package protocol

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// Keys is the most keys of a Lookup. Several reads of one view answer it if the engine takes fewer.
func (s *Store) Keys() int { return max(s.limits.Keys, 1000) }

// View opens a view. It costs nothing until the first call.
func (s *Store) View() store.View { return s.view() }

// ViewAt opens a view of a past moment (engine.Limits.Past). It is nil if the database keeps no past.
func (s *Store) ViewAt(at time.Time) store.View {
	if s.limits.Past == 0 {
		return nil
	}
	return &view{store: s, View: s.engine.View(at)}
}

func (s *Store) view() *view { return &view{store: s, View: s.engine.View(time.Time{})} }

// A view is a view of the engine.
type view struct {
	engine.View
	store *Store
}

// keys returns up to limit keys of a range.
func (v *view) keys(ctx context.Context, r engine.Range, limit int) (keys []engine.Key, err error) {
	for row, err := range v.store.scan(ctx, v, r) {
		if err != nil {
			return nil, err
		}
		if keys = append(keys, keyOf(row)); len(keys) == limit {
			break
		}
	}
	return keys, nil
}

func (v *view) ReadTime() time.Time { return v.At() }

// ofTotals are the fields that totals need. Buckets and grouped parts stay in the database.
var ofTotals = append([]engine.FieldID{fieldCount, fieldBucketed}, recordFields...)

// Lookup passes deferred rows on: the caller has its own time.
func (v *view) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	values := make([]store.Value, 0, len(keys))
	for begin := 0; begin < len(keys) || begin == 0; {
		lot := keys[begin:min(begin+v.store.limits.Keys, len(keys))]
		wanted := make([]engine.Key, len(lot))
		for i, k := range lot {
			if wanted[i] = recordKey(k.Counter); k.Shard != store.RecordKey {
				wanted[i] = v.store.shardKey(k.Counter, k.Shard)
			}
		}
		rows, err := v.Get(ctx, wanted, ofTotals...)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			value, err := valueOf(&wanted[i], &rows[i])
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		begin += max(len(lot), 1)
	}
	return values, nil
}

// valueOf reads a record or a shard.
func valueOf(key *engine.Key, r *engine.Row) (v store.Value, err error) {
	switch v.Exists, v.Deferred = r.Exists, r.Deferred; {
	case r.Bad != "":
		return v, fmt.Errorf("%s %d of %q: %s", Kinds[key.Kind].Name, key.Part, key.Name, r.Bad)
	case key.Kind == kindRecord:
		v.Shards, v.Remainder, v.Reset = int(r.Int64(fieldShards)), r.Int(fieldRemainder), resetOf(r)
	default:
		v.Count, v.Bucketed = r.Int(fieldCount), r.Int(fieldBucketed)
	}
	return v, nil
}

// resetOf reads what resets have written into a record.
func resetOf(r *engine.Row) store.ResetState {
	return store.ResetState{Baseline: r.Int(fieldBaseline), ResetAt: timeOf(r.Int64(fieldResetAt)), DeletedAt: timeOf(r.Int64(fieldDeletedAt))}
}

// List scans records.
func (v *view) List(ctx context.Context, prefix, after string, limit int) (records []store.Record, err error) {
	if limit <= 0 || !utf8.ValidString(prefix) || !utf8.ValidString(after) {
		return nil, nil // names are UTF-8
	}
	rows := v.Scan(ctx, engine.Range{Kind: kindRecord, Prefix: prefix, From: engine.Key{Name: after}, After: true, Page: limit}, recordFields...)
	defer rows.Close()
	for len(records) < limit {
		r := rows.Next()
		if r == nil {
			break
		}
		value, err := valueOf(&r.Key, r)
		if err != nil {
			return nil, err
		}
		records = append(records, store.Record{Counter: strings.Clone(r.Key.Name), Shards: value.Shards, Reset: value.Reset, Remainder: value.Remainder})
	}
	return records, rows.Err()
}
